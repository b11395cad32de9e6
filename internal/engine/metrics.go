package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// unknownDomain stands for all domains that no rules name: a request cannot make a series.
const unknownDomain = "_unknown"

// metrics is what the engine tells Prometheus. Counters of rules live in the view, so that they come and go with their
// rules and a request finds them without a look-up; collect.go reads them from there.
type metrics struct {
	enabled  bool
	unknown  *domainMetrics
	duration prometheus.Histogram
}

func newMetrics(e *Engine, r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		enabled: r != nil,
		unknown: newDomainMetrics(unknownDomain, nil),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:                            "ratelimitd_decision_duration_seconds",
			Help:                            "Time from a decoded request to its verdict, without what a queue held it.",
			Buckets:                         []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025},
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.duration, &collector{e}} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// now returns when a decision began, or the zero time if nobody measures it.
func (m *metrics) now() time.Time {
	if !m.enabled {
		return time.Time{}
	}
	return time.Now()
}

// The values of the label verdict of decisions.
const (
	verdictOK = iota
	verdictOver
	verdictShadowOver // --shadow let it pass
	verdictCount
)

// The values of the label origin: those of store.Origin, and one for what needed no state.
const (
	originNone  = int(store.Unavailable) + 1
	originCount = originNone + 1
)

var (
	verdictNames = [verdictCount]string{"ok", "over", "shadow_over"}
	originNames  = [originCount]string{
		store.FromStore: "store", store.FromLease: "lease", store.FromLocal: "local",
		store.FromDeniedCache: "denied_cache", store.Unavailable: "unavailable", originNone: "none",
	}
)

// observe counts a decision: once for its deciding rule, and the hits of each charge for their limit.
func (m *metrics) observe(p *plan, v *Verdict) {
	p.countMatches()
	if v.Nearest >= 0 {
		p.counts(p.matches[v.Nearest].first).decide(outcome(v), p.origin(v))
	} else {
		p.metrics.none[outcome(v)][p.origin(v)].Add(1)
	}
	if p.blocked != nil {
		p.metrics.blocked.Add(1)
	}
	if p.tooMany {
		p.metrics.tooMany.Add(1)
		return
	}
	for j := range p.decisions {
		p.countHits(j)
	}
	if !p.start.IsZero() {
		m.observeDuration(p)
	}
}

// countMatches counts what no limit is there to count, and finds the series of the rest where values make them.
func (p *plan) countMatches() {
	for i := range p.matches {
		m := &p.matches[i]
		if p.blocked == nil && m.unmatched() {
			p.metrics.unmatched.Add(1)
		}
		if m.invalid {
			p.metrics.overrideInvalid.Add(1)
		}
		if m.n > 0 && m.path != "" {
			m.series = p.owners[m.first].counts.of.rules.at(m.path)
		}
	}
}

// counts returns where the hits of charge j are counted.
func (p *plan) counts(j int) *counts {
	o := &p.owners[j]
	if m := &p.matches[o.match]; m.series != nil {
		return &m.series.limits[o.counts.limit]
	}
	return o.counts
}

func outcome(v *Verdict) int {
	switch {
	case v.Over:
		return verdictOver
	case v.WouldDeny:
		return verdictShadowOver
	default:
		return verdictOK
	}
}

// origin returns where the decision was paid: nowhere if any of its charges was not, since that is what an operator asks
// of it; else where the deciding limit was.
func (p *plan) origin(v *Verdict) int {
	if len(p.decisions) == 0 {
		return originNone
	}
	o := p.decisions[0].Origin
	if v.Nearest >= 0 {
		o = v.Statuses[v.Nearest].Origin
	}
	for i := range p.decisions {
		if p.decisions[i].Origin == store.Unavailable {
			o = store.Unavailable
		}
	}
	return int(o)
}

// countHits counts the hits of charge j: over if its limit refused them, within if it had room for them, whatever became
// of the request; so that total = within + over. Near are those within that were booked beyond four fifths of the limit,
// the reference's NEAR_LIMIT_RATIO.
func (p *plan) countHits(j int) {
	hits := p.charges[j].Hits
	if hits <= 0 {
		return
	}
	o, d, c := &p.owners[j], &p.decisions[j], p.counts(j)
	if d.Allowed {
		c.within.Add(uint64(hits))
		most, _ := quota(o.limit.Bucket)
		used := most - d.Remaining
		if near := min(d.Granted, used-most*4/5); near > 0 {
			c.rarely().near.Add(uint64(near))
		}
		return
	}
	c.rarely().over.Add(uint64(hits))
	if r := p.matches[o.match].rule; r != nil && r.Shadow {
		c.rarely().shadowOver.Add(uint64(hits))
	}
}

func (m *metrics) observeDuration(p *plan) {
	took := (time.Since(p.start) - p.held).Seconds()
	if p.span != nil {
		if o, ok := m.duration.(prometheus.ExemplarObserver); ok && p.span.SpanContext().IsSampled() {
			o.ObserveWithExemplar(took, prometheus.Labels{"trace_id": p.span.SpanContext().TraceID().String()})
			return
		}
	}
	m.duration.Observe(took)
}
