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
	limits    []limit // by rule.Limit.ID
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

// limit is one limit that charges are made on: of a rule, or of a request. Its first half is what charging it takes, its
// second what its status says; each is a cache line.
type limit struct {
	bucket   *bucket.Limit
	policy   *bucket.Policy
	identity string
	rule     *ruleMetrics
	index    int           // of its counters within those of its rule
	maxDelay time.Duration // > 0: answers may be held in a queue
	raw      bool          // told apart by the entries as they came, since no rule says how
	debt     bool          // explicit hits are reports

	unit       bucket.Unit
	requests   uint32
	multiplier uint32
	name       string
	quota      int64         // see Status.Quota
	window     time.Duration // see Status.Window
	_          [24]byte
}

// newView compiles a snapshot. Counters of the view before live on where their labels do.
func (e *Engine) newView(s *rule.Snapshot, old *view) *view {
	v := &view{
		snapshot: s,
		limits:   make([]limit, s.LimitCount()),
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
				v.limits[l.ID] = configured(l, rm, i)
			}
		}
	}
	v.exceptions = e.newExceptions(v, e.exceptional)
	return v
}

func configured(l *rule.Limit, m *ruleMetrics, index int) limit {
	x := limit{
		bucket: l.Bucket, policy: l.Policy, identity: l.Identity,
		name: l.Name, requests: l.Requests, unit: l.Unit, multiplier: max(l.Multiplier, 1),
		rule: m, index: index,
	}
	x.derive()
	return x
}

// derive fills in what follows from the bucket's limit.
func (l *limit) derive() {
	c := l.bucket.Config()
	l.maxDelay, l.debt = c.MaxDelay, c.Debt > 0
	l.quota, l.window = c.Hits, l.bucket.Period()
	if c.Algorithm.Family() == bucket.Credit && c.Hits > 0 {
		l.quota, l.window = c.Burst, scale(l.window, c.Burst, c.Hits)
	}
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
