package engine

import (
	"math"
	"math/bits"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// view is a snapshot as the engine uses it: every limit beside the numbers of its status and its counters, made once, so
// that a request looks nothing up. Never changed but for its cache of overrides and the counters.
type view struct {
	snapshot  *rule.Snapshot
	counts    []*counts // by rule.Limit.ID
	domains   map[string]*domain
	overrides overrides

	exceptions *exceptions // nil: none
}

// domain is a domain of a view.
type domain struct {
	*rule.Domain
	lookups rule.Lookups
	metrics *domainMetrics
	quota   bool // every limit is one of quota_mode
}

// limit is a limit that stands in for one of a rule: of a request, or as operators left it.
type limit struct {
	rule.Limit
	counts *counts
}

// newView compiles a snapshot. Counters of the view before live on where their labels do.
func (e *Engine) newView(s *rule.Snapshot, old *view) *view {
	v := &view{
		snapshot: s,
		counts:   make([]*counts, s.LimitCount()),
		domains:  make(map[string]*domain),
	}
	for _, d := range s.Domains() {
		x := &domain{Domain: d, lookups: s.Lookups(d), quota: e.quota && d.Profile == rule.Envoy}
		now, before := rulesByPath{}, rulesByPath{}
		var last *domainMetrics
		if old != nil && old.domains[d.Name] != nil {
			last = old.domains[d.Name].metrics
			for _, m := range last.rules {
				before.add(m)
			}
		}
		x.metrics = newDomainMetrics(d.Name, last)
		v.domains[d.Name] = x
		for _, r := range d.Rules() {
			if len(r.Limits) == 0 {
				continue
			}
			rm := x.metrics.add(r, now, before)
			for i, l := range r.Limits {
				v.counts[l.ID] = &rm.static.limits[i]
			}
		}
	}
	v.exceptions = e.newExceptions(v, e.exceptional)
	return v
}

// quota returns what Status.Quota and Status.Window say of a limit.
func quota(l *bucket.Limit) (hits int64, window time.Duration) {
	t, period := l.Terms(), l.Period()
	if l.Family() != bucket.Credit || t.N == 0 || t.B == t.N {
		return t.N, period
	}
	return t.B, scale(period, t.B, t.N)
}

// scale returns d × n ÷ m rounded up, and the longest duration where that is longer. m is at least 1.
func scale(d time.Duration, n, m int64) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(n))
	lo, carry := bits.Add64(lo, uint64(m-1), 0)
	if hi += carry; hi >= uint64(m) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(m))
	return time.Duration(min(q, math.MaxInt64))
}
