package engine

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Verdict is the answer to a Request. A caller may reuse one. The zero value is ready for Decide.
type Verdict struct {
	Over      bool     // the overall code
	WouldDeny bool     // over but for --shadow
	Envoy     bool     // the domain's profile is envoy
	Statuses  []Status // one a descriptor, in order
	Nearest   int      // index of the status nearest to or over its edge, which headers speak of; -1 if no limit applies

	// Blocked is why the domain's blocklist refuses the request, nil if it does not. Then no limit applies; the statuses
	// of the descriptors with a listed entry are Over, and the others say nothing.
	Blocked *rule.Block
}

// Status is the answer for one descriptor: of its strictest limit, if several apply.
type Status struct {
	Over       bool
	Rule       *rule.Rule    // nil: unmatched
	Path       string        // the rule's metric path, if values of the request are in it; the domain and the entries' keys for an override without a rule; else ""
	HasLimit   bool          // whether a limit applies, and the next fields tell its numbers
	Name       string        // the limit's name, "" if it has none
	Requests   uint32        // requests_per_unit
	Unit       bucket.Unit   //
	Multiplier uint32        // at least 1
	Quota      int64         // what the limit grants at one instant: burst for the credit family, else requests
	Window     time.Duration // over which Quota comes back: burst ÷ rate for the credit family, else the period
	Unlimited  bool          // answered without a limit; Remaining is bucket.MaxHits
	Shadow     bool          // of a shadow rule: never Over, never Nearest
	InQuota    bool          // of a quota_mode rule, or all are (Options.Quota)
	Unpaid     bool          // no store could be asked; decided by the failure mode
	Remaining  uint32        // 0 when Over, or when a shadow rule would be
	Reset      time.Duration // the wait when Over and a wait helps, else until full or the window's end; profile envoy: whole seconds, at least 1
	RetryAfter time.Duration // when Over: the wait; bucket.Never: no wait helps
	Hits       uint64        // hits this descriptor asked for
	Origin     store.Origin
}

// MetricPath returns where the descriptor's hits are counted: Path, or the path of its rule; "" if there is neither.
func (s *Status) MetricPath() string {
	if s.Path == "" && s.Rule != nil {
		return s.Rule.FullPath()
	}
	return s.Path
}

// verdict turns the decisions of p into the answer.
func (e *Engine) verdict(p *plan, v *Verdict) {
	v.Statuses = slices.Grow(v.Statuses[:0], len(p.matches))[:len(p.matches)]
	for i := range p.matches {
		p.status(i, &v.Statuses[i])
	}
	v.Over, v.WouldDeny = !p.admitted && !e.shadow, !p.admitted && e.shadow
	v.Envoy = p.domain != nil && p.domain.Profile == rule.Envoy
	v.Nearest = p.nearest(v)
	v.Blocked = p.blocked
}

// status writes the status of descriptor i.
func (p *plan) status(i int, s *Status) {
	m := &p.matches[i]
	*s = Status{Rule: m.rule, Path: m.path, Hits: m.hits}
	s.Shadow, s.InQuota = m.rule != nil && m.rule.Shadow, p.inQuota(m.rule)
	if m.blocked != nil {
		s.Over, s.RetryAfter = true, bucket.Never
	}
	if m.unlimited {
		s.Unlimited, s.Remaining = true, bucket.MaxHits
	}
	if m.n == 0 {
		return
	}
	if m.n == 1 {
		p.fill(m.first, s)
		return
	}
	bare := *s
	p.fill(m.first, s)
	for j := m.first + 1; j < m.first+m.n; j++ {
		other := bare
		p.fill(j, &other)
		if Stricter(&other, s) {
			*s = other
		}
	}
}

// fill writes what charge j adds to the status of its descriptor.
func (p *plan) fill(j int, s *Status) {
	l := p.owners[j].limit
	s.HasLimit = true
	s.Name, s.Requests, s.Unit, s.Multiplier = l.Name, l.Requests, l.Unit, max(l.Multiplier, 1)
	s.Quota, s.Window = quota(l.Bucket)
	d := store.Decision{RetryAfter: bucket.Never} // of a request with too many charges, of which none was made
	if !p.tooMany {
		d = p.decisions[j]
	}
	s.Origin, s.Unpaid = d.Origin, d.Origin == store.Unavailable
	over := !d.Allowed && !p.matches[p.owners[j].match].lenient
	if !over {
		s.Remaining = clampHits(d.Remaining)
	}
	s.Reset = d.ResetAfter
	if over && !s.Shadow {
		s.Over, s.RetryAfter = true, d.RetryAfter
		if d.RetryAfter != bucket.Never {
			s.Reset = d.RetryAfter
		}
	}
	if p.domain.Profile == rule.Envoy {
		s.Reset = max(wholeSeconds(s.Reset), time.Second)
	}
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) time.Duration {
	if part := d % time.Second; part > 0 {
		d += time.Second - part
	}
	return d
}
