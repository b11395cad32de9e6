package limiter

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// degradedFor is how long after a decision by a failure mode its gauge says degraded.
const degradedFor = 10 * time.Second

// modes are the failure modes, each its own index.
var modes = [...]bucket.FailureMode{bucket.FailOpen, bucket.LocalStrict, bucket.FailClosed}

// metrics is the limiter's collector. Its labels are names of rules and shards, and failure modes.
type metrics struct {
	limiter *Limiter
	last    [len(modes)]atomic.Int64 // when a mode last decided, since the limiter's start; 0 is never

	fallback    *prometheus.CounterVec
	denied      prometheus.Counter
	saturated   prometheus.Counter
	unsettled   prometheus.Counter
	transitions *prometheus.CounterVec

	state, degraded, inFlight *prometheus.Desc
}

func newMetrics(l *Limiter) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		limiter: l,
		fallback: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimitd_fallback_decisions_total",
			Help: "Charges that the store did not pay, by their rule and the failure mode that decided them.",
		}, []string{"rule", "mode"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimitd_breaker_transitions_total",
			Help: "Times that a shard's breaker came to a state.",
		}, []string{"shard", "to"}),
		denied:    counter("ratelimitd_limiter_denied_total", "Requests denied from memory, since the store had denied as much."),
		saturated: counter("ratelimitd_limiter_saturated_total", "Calls of the store that were not made because too many were under way."),
		unsettled: counter("ratelimitd_limiter_unsettled_total", "Corrections of what the store booked for part of a request that were lost."),
		state: prometheus.NewDesc("ratelimitd_breaker_state",
			"Whether a shard's breaker is open: 0 closed, 1 open, in which state no request reaches the shard.", []string{"shard"}, nil),
		degraded: prometheus.NewDesc("ratelimitd_limiter_degraded",
			"Whether a failure mode has decided in the last 10 s.", []string{"mode"}, nil),
		inFlight: prometheus.NewDesc("ratelimitd_limiter_in_flight",
			"Calls of the store under way, those given up on included.", nil, nil),
	}
}

// fellBack counts a charge that its failure mode decides.
func (m *metrics) fellBack(c *store.Charge) {
	mode, rule := bucket.FailOpen, ""
	if c.Policy != nil {
		mode, rule = c.Policy.OnFailure, c.Policy.Rule
	}
	m.last[mode].Store(int64(m.limiter.now()))
	m.fallback.WithLabelValues(rule, mode.String()).Inc()
}

// moved counts a transition of a breaker.
func (m *metrics) moved(shard string, open bool) {
	to := "closed"
	if open {
		to = "open"
	}
	m.transitions.WithLabelValues(shard, to).Inc()
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.counters() {
		c.Describe(ch)
	}
	ch <- m.state
	ch <- m.degraded
	ch <- m.inFlight
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counters() {
		c.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if s := m.limiter.shards; s != nil {
		s.each(func(n int, b *breaker) { gauge(m.state, float(b.open.Load()), s.topology.Name(n)) })
	}
	for i := range modes {
		last := m.last[i].Load()
		gauge(m.degraded, float(last > 0 && m.limiter.now()-time.Duration(last) <= degradedFor), modes[i].String())
	}
	gauge(m.inFlight, float64(m.limiter.inFlight.Load()))
}

func (m *metrics) counters() []prometheus.Collector {
	return []prometheus.Collector{m.fallback, m.transitions, m.denied, m.saturated, m.unsettled}
}

func float(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
