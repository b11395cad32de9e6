package config

import "github.com/prometheus/client_golang/prometheus"

var (
	descLastOK = prometheus.NewDesc("ratelimitd_config_last_load_ok",
		"Whether the last load of the rules succeeded (1) or the last good rules had to stay (0).", nil, nil)
	descLastSuccess = prometheus.NewDesc("ratelimitd_config_last_success_timestamp_seconds",
		"When a load of the rules last succeeded, in Unix time.", nil, nil)
	descVersion = prometheus.NewDesc("ratelimitd_config_version",
		"How many versions of the rules have become current in this process.", nil, nil)
	descErrors = prometheus.NewDesc("ratelimitd_config_errors_total",
		"Loads of the rules that failed.", nil, nil)
	descInfo = prometheus.NewDesc("ratelimitd_config_info",
		"The current rules, by the hash of their content; always 1.", []string{"hash"}, nil)
)

// collector shows a Files' status to Prometheus, all of one moment.
type collector struct{ f *Files }

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLastOK, descLastSuccess, descVersion, descErrors, descInfo} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	st := c.f.Status()
	ok := 0.0
	if st.LastOK {
		ok = 1
	}
	ch <- prometheus.MustNewConstMetric(descLastOK, prometheus.GaugeValue, ok)
	ch <- prometheus.MustNewConstMetric(descLastSuccess, prometheus.GaugeValue, float64(st.Loaded.UnixMilli())/1e3)
	ch <- prometheus.MustNewConstMetric(descVersion, prometheus.GaugeValue, float64(st.Version))
	ch <- prometheus.MustNewConstMetric(descErrors, prometheus.CounterValue, float64(st.Failures))
	ch <- prometheus.MustNewConstMetric(descInfo, prometheus.GaugeValue, 1, st.Hash)
}
