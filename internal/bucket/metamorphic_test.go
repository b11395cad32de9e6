package bucket_test

import (
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Tests of what must not matter, and of what is promised whatever happens.

var families = []bucket.Family{bucket.Credit, bucket.Window, bucket.Log}

// eachFamily runs a play again and again on each family, about as many asks as ops says.
func eachFamily(t *testing.T, perPlay int, play func(t *testing.T, c chance, l *bucket.Limit)) {
	t.Helper()
	for _, family := range families {
		t.Run(family.String(), func(t *testing.T) {
			t.Parallel()
			c := newChance(t)
			for range ops() / 10 / perPlay {
				play(t, c, c.limit(family))
				if t.Failed() {
					return
				}
			}
		})
	}
}

// year2030 is an instant with room before and after it.
const year2030 = 1_893_456_000_000_000

// TestShift: when it is does not matter, as long as windows begin where they did.
func TestShift(t *testing.T) {
	t.Parallel()
	eachFamily(t, 50, func(t *testing.T, c chance, l *bucket.Limit) {
		if l.Config().Calendar != nil {
			return
		}
		shift := c.upTo(1 << 50)
		if l.Family() == bucket.Window {
			shift -= shift % l.Period().Microseconds()
		}
		var s, shifted bucket.State
		var ticks []int64
		now := int64(year2030)
		var o bucket.Outcome
		for range 50 {
			now = max(0, now+c.step(l, o))
			if now+shift > bucket.MaxTime-(1<<49) {
				return
			}
			a := c.ask(l, ticks)
			o = l.Take(&s, now, a)
			if a.Tick != 0 {
				a.Tick += shift
			}
			got := l.Take(&shifted, now+shift, a)
			want := o
			if want.Tick != 0 {
				want.Tick += shift
				ticks = append(ticks, o.Tick)
			}
			if cut := int64(bucket.MaxTime); want.ResetAfter > cut-now-shift || want.RetryAfter > cut-now-shift || want.TTL > cut-now-shift {
				return // time ends in between
			}
			if got != want {
				t.Fatalf("%+v under %+v at %d, and %d later\n%s", a, l.Config(), now, shift, cmp.Diff(want, got))
			}
		}
	})
}

// TestSplit: n times one is one time n at the same instant.
func TestSplit(t *testing.T) {
	t.Parallel()
	eachFamily(t, 20, func(t *testing.T, c chance, l *bucket.Limit) {
		if l.Config().MaxDelay > 0 {
			return // each place in a queue has its own delay
		}
		s, now := randomState(c, l)
		n := 1 + c.Int64N(20)
		for _, mode := range []bucket.Mode{bucket.Fit, bucket.Report} {
			whole, parts := clone(s), clone(s)
			o := l.Take(&whole, now, bucket.Ask{Hits: n, Mode: mode})
			granted := int64(0)
			var last bucket.Outcome
			for range n {
				last = l.Take(&parts, now, bucket.Ask{Hits: 1, Mode: mode})
				granted += last.Granted
			}
			if mode == bucket.Fit && !o.Allowed {
				continue
			}
			if !sameState(whole, parts) || granted != o.Granted || last.Remaining != o.Remaining {
				t.Fatalf("%d hits in mode %d under %+v at %d on %+v: got %d one by one, want %d\n%s", n, mode, l.Config(), now, s, granted, o.Granted, cmp.Diff(whole, parts))
			}
		}
	})
}

// TestPartial: a partial grant takes as much as single hits would.
func TestPartial(t *testing.T) {
	t.Parallel()
	eachFamily(t, 20, func(t *testing.T, c chance, l *bucket.Limit) {
		s, now := randomState(c, l)
		n := 1 + c.Int64N(20)
		one, parts := clone(s), clone(s)
		o := l.Take(&one, now, bucket.Ask{Hits: n, AtLeast: 1, Mode: bucket.Fit})
		granted := int64(0)
		for range n {
			granted += l.Take(&parts, now, bucket.Ask{Hits: 1, Mode: bucket.Fit}).Granted
		}
		if l.Config().MaxDelay == 0 && (granted != o.Granted || !sameState(one, parts)) {
			t.Fatalf("up to %d hits under %+v at %d on %+v: got %d, want %d", n, l.Config(), now, s, o.Granted, granted)
		}
	})
}

// TestWait: waiting exactly as long as one is told is admitted, one tick less is not, and so is one microsecond less.
func TestWait(t *testing.T) {
	t.Parallel()
	eachFamily(t, 5, func(t *testing.T, c chance, l *bucket.Limit) {
		s, now := randomState(c, l)
		a := c.ask(l, nil)
		o := l.Take(&s, now, a)
		if (o.RetryAfter == 0) != o.Allowed {
			t.Fatalf("%+v under %+v at %d: got %+v", a, l.Config(), now, o)
		}
		if o.Allowed {
			return
		}
		a.Mode = bucket.Look
		look := func(at int64) bool {
			copied := clone(s)
			return l.Take(&copied, at, a).Allowed
		}
		if o.RetryAfter == -1 {
			for _, wait := range []int64{1, l.Period().Microseconds(), 1 << 40, bucket.MaxTime - now} {
				if look(now + wait) {
					t.Fatalf("%+v under %+v at %d on %+v: never, but fits after %d µs", a, l.Config(), now, s, wait)
				}
			}
			return
		}
		if !look(now + o.RetryAfter) {
			t.Fatalf("%+v under %+v at %d on %+v: does not fit after its wait of %d µs", a, l.Config(), now, s, o.RetryAfter)
		}
		for _, less := range []int64{1, l.Tick().Microseconds()} {
			if o.RetryAfter > less && look(now+o.RetryAfter-less) {
				t.Fatalf("%+v under %+v at %d on %+v: fits %d µs before its wait of %d µs", a, l.Config(), now, s, less, o.RetryAfter)
			}
		}
	})
}

// randomState returns what some asks under l left, and when.
func randomState(c chance, l *bucket.Limit) (bucket.State, int64) {
	var s bucket.State
	var o bucket.Outcome
	now := int64(year2030)
	for range c.IntN(10) {
		now = max(0, min(now+c.step(l, o), bucket.MaxTime))
		o = l.Take(&s, now, c.ask(l, nil))
	}
	return s, now
}

// TestBounds counts what a bucket admits: in any time T the credit family at most burst + rate × T, a log at most N in any
// period, a fixed window at most 2N and a sliding one fewer.
func TestBounds(t *testing.T) {
	t.Parallel()
	eachFamily(t, 200, func(t *testing.T, c chance, l *bucket.Limit) {
		type taken struct{ at, hits int64 }
		var s bucket.State
		var o bucket.Outcome
		var all []taken
		cfg, period := l.Config(), l.Period().Microseconds()
		now := int64(year2030)
		for range 200 {
			now = min(now+max(0, c.step(l, o)), bucket.MaxTime)
			a := c.ask(l, nil)
			a.Hits, a.Mode = max(1, a.Hits), bucket.Fit
			if o = l.Take(&s, now, a); o.Granted == 0 {
				continue
			}
			all = append(all, taken{now, o.Granted})
			sum := int64(0)
			for _, earlier := range slices.Backward(all) {
				sum += earlier.hits
				elapsed := now - earlier.at
				if l.Family() == bucket.Credit {
					// sum ≤ burst + hits × elapsed / period, without rounding.
					most := new(big.Int).Mul(big.NewInt(cfg.Burst), big.NewInt(period))
					most.Add(most, new(big.Int).Mul(big.NewInt(cfg.Hits), big.NewInt(elapsed)))
					if got := new(big.Int).Mul(big.NewInt(sum), big.NewInt(period)); got.Cmp(most) > 0 {
						t.Fatalf("%+v: got %d hits in %d µs, want at most %v/%d", cfg, sum, elapsed, most, period)
					}
					continue
				}
				if elapsed >= period || cfg.Calendar != nil {
					break
				}
				most := cfg.Hits
				switch cfg.Algorithm {
				case bucket.FixedWindow:
					most = 2 * cfg.Hits
				case bucket.SlidingWindow:
					most = 2*cfg.Hits - 1
				}
				if sum > most {
					t.Fatalf("%+v: got %d hits in %d µs, want at most %d in a period", cfg, sum, elapsed, most)
				}
			}
		}
	})
}

// TestHitsNeverRefill: whatever a caller asks for without giving back, it has no more in hand than before (C02).
func TestHitsNeverRefill(t *testing.T) {
	t.Parallel()
	eachFamily(t, 20, func(t *testing.T, c chance, l *bucket.Limit) {
		s, now := randomState(c, l)
		hand := func() int64 { return l.Take(new(clone(s)), now, bucket.Ask{}).Remaining }
		before := hand()
		for range 5 {
			a := c.ask(l, nil)
			if a.Hits < 0 {
				a.Hits = -(a.Hits + 1)
			}
			l.Take(&s, now, a)
			after := hand()
			if after > before {
				t.Fatalf("%+v under %+v at %d: got %d in hand, had %d", a, l.Config(), now, after, before)
			}
			before = after
		}
	})
}
