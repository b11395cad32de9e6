package engine

import (
	"cmp"
	"math"
	"math/bits"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Stricter reports whether a is stricter than b, both of them with a limit: refused before admitted; of two refused the
// longer wait, never the longest; of two admitted the smaller share of its limit left, then the fewer hits left. It is
// the one order of answers: a total preorder, so that the strictest of many is the same however they are compared.
func Stricter(a, b *Status) bool { return compare(a, b) < 0 }

// compare is negative where a is stricter, 0 where neither is.
func compare(a, b *Status) int {
	switch {
	case a.Over != b.Over:
		if a.Over {
			return -1
		}
		return 1
	case a.Over:
		return cmp.Compare(wait(b), wait(a))
	}
	// a.Remaining ÷ a.Quota against b.Remaining ÷ b.Quota without dividing. A limit of 0 has nothing left of nothing:
	// a share of 0, whatever its quota.
	aHi, aLo := bits.Mul64(uint64(a.Remaining), uint64(max(b.Quota, 1)))
	bHi, bLo := bits.Mul64(uint64(b.Remaining), uint64(max(a.Quota, 1)))
	return cmp.Or(cmp.Compare(aHi, bHi), cmp.Compare(aLo, bLo), cmp.Compare(a.Remaining, b.Remaining))
}

func wait(s *Status) time.Duration {
	if s.RetryAfter == bucket.Never {
		return math.MaxInt64
	}
	return s.RetryAfter
}

// nearest returns the index of the status that headers speak of, -1 if none: the strictest of those that refuse the
// request, or of all when it is admitted. Shadow rules don't count, nor what was admitted without asking a store, of
// which nothing is known. Of equals the first is chosen.
func (p *plan) nearest(v *Verdict) int {
	best := -1
	for i := range v.Statuses {
		s := &v.Statuses[i]
		if !s.HasLimit || s.Shadow || s.Unpaid && !s.Over {
			continue
		}
		if v.Envoy {
			if best < 0 || envoyNearer(s, &v.Statuses[best]) {
				best = i
			}
			continue
		}
		if !p.admitted && !p.refuses(i, s) {
			continue
		}
		if best < 0 || Stricter(s, &v.Statuses[best]) {
			best = i
		}
	}
	return best
}

// envoyNearer is the rule of the reference service: the fewer hits left, but a refusal outside a quota takes over from
// whatever came before it, and only another takes over from it: it has nothing left.
func envoyNearer(s, best *Status) bool {
	return s.Over && !s.InQuota || s.Remaining < best.Remaining
}

// refuses reports whether the status of descriptor i has part in the request's refusal: it is over, and if it is in a
// quota group no other of the group has room.
func (p *plan) refuses(i int, s *Status) bool {
	if !s.Over || p.tooMany {
		return s.Over
	}
	vote := p.charges[p.matches[i].first].Vote
	if vote == store.VoteNone {
		return false
	}
	if vote >= store.VoteQuota {
		for j := range p.charges {
			if p.charges[j].Vote == vote && p.decisions[j].Allowed {
				return false
			}
		}
	}
	return true
}
