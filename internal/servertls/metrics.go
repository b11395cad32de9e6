package servertls

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ expiry, ok prometheus.Gauge }

// newMetrics registers the metrics of a server; with a nil registerer they are only kept.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ratelimitd_tls_certificate_expiry_timestamp_seconds",
			Help: "When the certificate that the gRPC port shows ends, in seconds since the epoch.",
		}),
		ok: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ratelimitd_tls_last_load_ok",
			Help: "Whether the certificate on disk is the one that is shown (1), or is wrong, so that an older one still is (0).",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.expiry, m.ok} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
