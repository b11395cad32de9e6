package config

import "github.com/prometheus/client_golang/prometheus"

var (
	descLastOK = prometheus.NewDesc("ratelimitd_config_last_load_ok",
		"Whether the last version of the rules was good (1) or the last good rules had to stay (0).", nil, nil)
	descLastSuccess = prometheus.NewDesc("ratelimitd_config_last_success_timestamp_seconds",
		"When a version of the rules last was good, in Unix time.", nil, nil)
	descVersion = prometheus.NewDesc("ratelimitd_config_version",
		"How many versions of the rules have become current.", nil, nil)
	descErrors = prometheus.NewDesc("ratelimitd_config_errors_total",
		"Versions of the rules that were refused.", nil, nil)
	descInfo = prometheus.NewDesc("ratelimitd_config_info",
		"The current rules, by the hash of their content; always 1.", []string{"hash"}, nil)
	descRestored = prometheus.NewDesc("ratelimitd_config_restored",
		"Whether the current rules are those of an earlier process (1), since their origin has given none yet.", nil, nil)
	descDomains = prometheus.NewDesc("ratelimitd_config_domains", "Domains of the current rules.", nil, nil)
	descLimits  = prometheus.NewDesc("ratelimitd_config_limits", "Limits of the current rules.", nil, nil)
)

// collector shows a Live's status to Prometheus, all of one moment.
type collector struct{ l *Live }

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descLastOK, descLastSuccess, descVersion, descErrors, descInfo, descRestored, descDomains, descLimits,
	} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	st := c.l.Status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descLastOK, truth(st.LastOK))
	if !st.Loaded.IsZero() {
		gauge(descLastSuccess, float64(st.Loaded.UnixMilli())/1e3)
	}
	gauge(descVersion, float64(st.Version))
	ch <- prometheus.MustNewConstMetric(descErrors, prometheus.CounterValue, float64(st.Failures))
	if st.Hash != "" {
		gauge(descInfo, 1, st.Hash)
	}
	gauge(descRestored, truth(st.Restored))
	gauge(descDomains, float64(st.Domains))
	gauge(descLimits, float64(st.Limits))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
