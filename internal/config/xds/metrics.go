package xds

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	connected prometheus.Gauge
	responses *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ratelimitd_xds_connected",
			Help: "Whether there is a stream to the control plane (1), or it is being tried to open one (0).",
		}),
		responses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimitd_xds_responses_total",
			Help: "Responses of the control plane, by the answer they got.",
		}, []string{"answer"}),
	}
	for _, answer := range []string{"ack", "nack"} {
		m.responses.WithLabelValues(answer)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.connected, m.responses} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
