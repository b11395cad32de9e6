package engine

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ratelimitd_"+name, help, labels, nil)
}

// What is read from the view's counters.
var (
	descDecisions = desc("decisions_total",
		"Requests decided, by the rule that decided them (empty: none) and where its charge was paid.",
		"domain", "rule", "verdict", "origin")
	descHits = desc("hits_total",
		"Hits asked of a limit: those within and those over.", "domain", "rule", "limit")
	descWithin = desc("hits_within_total",
		"Hits that a limit had room for.", "domain", "rule", "limit")
	descOver = desc("hits_over_total",
		"Hits that a limit refused, those of shadow rules included.", "domain", "rule", "limit")
	descNear = desc("hits_near_total",
		"Hits within a limit and booked beyond four fifths of it.", "domain", "rule", "limit")
	descShadowOver = desc("hits_shadow_over_total",
		"Hits over a limit of a shadow rule, which let them pass.", "domain", "rule", "limit")
	descUnmatched = desc("unmatched_descriptors_total",
		"Descriptors that no rule matched.", "domain")
	descOverrideInvalid = desc("overrides_invalid_total",
		"Limits in requests that were ignored because they are not valid.", "domain")
	descTooMany = desc("too_many_charges_total",
		"Requests refused because they made more charges than one request may.", "domain")
	descBlocked = desc("blocked_total",
		"Requests with an entry on the blocklist.", "domain")
	descWaiters = desc("queue_waiters",
		"Answers held in queues of leaky buckets now.")
)

// collector reads the counters of the engine's current view.
type collector struct{ engine *Engine }

// Describe implements prometheus.Collector.
func (*collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descDecisions, descHits, descWithin, descOver, descNear, descShadowOver, descUnmatched, descOverrideInvalid,
		descTooMany, descBlocked, descWaiters,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	sums := make(samples)
	sums.domain(c.engine.metrics.unknown)
	if v := c.engine.latest(); v != nil {
		for _, d := range v.domains {
			sums.domain(d.metrics)
		}
	}
	for s, n := range sums {
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, float64(n), s.labels[:s.n]...)
	}
	ch <- prometheus.MustNewConstMetric(descWaiters, prometheus.GaugeValue, float64(c.engine.queue.waiting.Load()))
}

// samples sum up counters under equal labels: the dots of keys may make two paths one label, which Prometheus would
// refuse to see twice.
type samples map[sample]uint64

type sample struct {
	desc   *prometheus.Desc
	labels [4]string
	n      int
}

func (s samples) add(n uint64, d *prometheus.Desc, labels ...string) {
	k := sample{desc: d, n: len(labels)}
	copy(k.labels[:], labels)
	s[k] += n
}

func (s samples) domain(m *domainMetrics) {
	s.add(m.unmatched.Load(), descUnmatched, m.name)
	s.add(m.overrideInvalid.Load(), descOverrideInvalid, m.name)
	s.add(m.tooMany.Load(), descTooMany, m.name)
	s.add(m.blocked.Load(), descBlocked, m.name)
	s.decisions(m.name, "", func(v, o int) uint64 { return m.none[v][o].Load() })
	s.rule(m.override)
	for _, r := range m.rules {
		s.rule(r)
	}
}

func (s samples) rule(m *ruleMetrics) {
	s.series(m, &m.static)
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, x := range m.values {
		s.series(m, x)
	}
	if m.other != nil {
		s.series(m, m.other)
	}
}

func (s samples) series(m *ruleMetrics, x *series) {
	s.decisions(m.domain, x.rule, x.total)
	r := x.rare.Load()
	for i, limit := range m.limits {
		within, h := x.limits[i].within.Load(), &none
		if r != nil {
			h = &r.hits[i]
		}
		over := h.over.Load()
		s.add(within+over, descHits, m.domain, x.rule, limit)
		s.add(within, descWithin, m.domain, x.rule, limit)
		s.add(over, descOver, m.domain, x.rule, limit)
		s.add(h.near.Load(), descNear, m.domain, x.rule, limit)
		if n := h.shadowOver.Load(); n > 0 {
			s.add(n, descShadowOver, m.domain, x.rule, limit)
		}
	}
}

// none is what a limit without rare hits has of them.
var none rareHits

// decisions leaves out what never happened: most pairs of verdict and origin don't.
func (s samples) decisions(domain, rule string, count func(verdict, origin int) uint64) {
	for v := range verdictNames {
		for o := range originNames {
			if n := count(v, o); n > 0 {
				s.add(n, descDecisions, domain, rule, verdictNames[v], originNames[o])
			}
		}
	}
}
