package limiter

import (
	"context"
	"math"
	"math/bits"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// warm draws the local bucket of c down to this node's part of what the store last said was left, so that neither a slow
// call nor an outage hands out a second limit. A bucket that holds less already is left as it is, and nothing the store
// says ever fills one: over any time, in however many outages, a node admits no more here than its part of the limit.
func (l *Limiter) warm(ctx context.Context, c *store.Charge, nodes int64) {
	if l.recent == nil {
		return
	}
	mu := &l.warming[c.Key[8]%uint8(len(l.warming))]
	mu.Lock()
	defer mu.Unlock()
	now := l.now()
	e, known := l.recent.get(&c.Key)
	if !known || e.remaining == unknown || e.warmed == e.id() {
		return
	}
	if level := e.localLevel(c.Limit, nodes, now); level-e.owed < most(c.Limit) {
		l.drawDown(ctx, c, level, e.owed)
	}
	l.recent.followed(&e)
}

// drawDown takes hits from the local bucket of c until at most level are left, less what was granted here that the store
// did not know of when it said so: calls that were under way when an outage began are answered after others were decided
// here. Of those hits as many count as the bucket lacks; the rest has come back.
func (l *Limiter) drawDown(ctx context.Context, c *store.Charge, level, owed int64) {
	charge := [1]store.Charge{{Key: c.Key, Limit: c.Limit, Policy: c.Policy, Vote: store.VoteNone, MaxDelay: c.Limit.Config().MaxDelay}}
	var d [1]store.Decision
	if err := l.local.Take(ctx, charge[:], d[:]); err != nil {
		return
	}
	level = max(0, level-min(owed, most(c.Limit)-d[0].Remaining))
	if d[0].Remaining <= level {
		return
	}
	charge[0].Hits, charge[0].AtLeast = d[0].Remaining-level, 1 // somebody may take some of it at this moment
	_ = l.local.Take(ctx, charge[:], d[:])                      // what cannot be taken now is drawn down at the next charge's turn, or never needed
}

// localLevel returns the hits that the local bucket under part, a node's part of e's limit, may hold now: the node's part of
// what was left when the store spoke, and what has come back since at the local rate.
func (e *said) localLevel(part *bucket.Limit, nodes int64, now time.Duration) int64 {
	t := part.Terms()
	passed := max(0, now-e.at)
	level := e.remaining / nodes
	switch {
	case t.Sliding: // its reset is the end of a window that still counts in the next one
		if passed >= e.limit.Period() {
			return math.MaxInt64
		}
	case e.resetAfter(now) == 0: // full again, or another window
		return math.MaxInt64
	case part.Family() == bucket.Credit:
		high, low := bits.Mul64(uint64(passed.Microseconds()), uint64(t.N))
		period := uint64(t.P * t.Tau)
		if high >= period {
			return math.MaxInt64
		}
		back, _ := bits.Div64(high, low, period)
		if back > bucket.MaxHits {
			return math.MaxInt64
		}
		level += int64(back)
	}
	return level
}

// most returns the most hits that l grants at one instant.
func most(l *bucket.Limit) int64 {
	t := l.Terms()
	if l.Family() == bucket.Credit {
		return t.B
	}
	return t.N
}
