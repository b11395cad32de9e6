package bucket_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// TestGarbage: a state of any numbers is understood or absent, and answers stay in their ranges.
func TestGarbage(t *testing.T) {
	t.Parallel()
	eachFamily(t, 10, func(t *testing.T, c chance, l *bucket.Limit) {
		s := garbage(c, l.Family())
		now := c.start()
		var o bucket.Outcome
		for range 10 {
			before := clone(s)
			a := c.ask(l, []int64{c.upTo(bucket.MaxTime)})
			o = l.Take(&s, now, a)
			if err := outOfRange(l, now, a, o, s); err != "" {
				t.Fatalf("%s: %+v under %+v at %d on %+v: %+v, %+v", err, a, l.Config(), now, before, o, s)
			}
			now = max(0, min(now+c.step(l, o), bucket.MaxTime))
		}
	})
}

// garbage draws a state of numbers that mean nothing.
func garbage(c chance, family bucket.Family) bucket.State {
	var s bucket.State
	number := func() int64 {
		switch c.IntN(6) {
		case 0:
			return int64(c.Uint64())
		case 1:
			return -c.Int64N(3)
		case 2:
			return 1<<53 - c.Int64N(3)
		default:
			return c.upTo(1 << 53)
		}
	}
	for i := range s.Words {
		if family != bucket.Log {
			s.Words[i] = number()
		}
	}
	for range c.IntN(4) {
		if family != bucket.Log {
			break
		}
		s.Log = append(s.Log, bucket.Entry{Time: number(), Hits: number()})
	}
	return s
}

// outOfRange says which number of an answer cannot be, "" if none.
func outOfRange(l *bucket.Limit, now int64, a bucket.Ask, o bucket.Outcome, s bucket.State) string {
	cfg := l.Config()
	const cost = bucket.MaxCost
	switch {
	case o.Granted > max(0, a.Hits) || o.Granted < -cost || o.Granted < 0 && o.Granted < a.Hits:
		return "granted"
	case o.Granted > 0 && !o.Allowed && a.Mode != bucket.Report && a.Mode != bucket.Count:
		return "granted though refused"
	case o.Remaining < 0 || o.Remaining > max(cfg.Hits, cfg.Burst):
		return "remaining"
	case o.RetryAfter < -1 || (o.RetryAfter == 0) != o.Allowed || o.RetryAfter > bucket.MaxTime-now:
		return "retry"
	case o.ResetAfter < 0 || o.ResetAfter > bucket.MaxTime-now:
		return "reset"
	case o.Delay < 0 || o.Delay > cfg.MaxDelay.Microseconds():
		return "delay"
	case o.Tick < 0 || o.Tick > bucket.MaxTime+1 || (o.Tick == 0) != (o.Granted == 0):
		return "tick"
	case o.Changed && (o.TTL == 0) != s.Absent() || o.TTL < 0:
		return "ttl"
	case o.Granted != 0 && !o.Changed:
		return "changed"
	}
	if o.Changed && !s.Absent() {
		for _, w := range s.Words {
			if w < 0 || w >= 1<<53 {
				return "state"
			}
		}
	}
	return ""
}
