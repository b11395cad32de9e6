package storetest

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// everyAlgorithm is what holds whatever the algorithm, on a limit of 10 hits a minute.
var everyAlgorithm = map[string]func(*world, bucket.Config){
	"C04PeekSpendsNothing": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		w.remains("fresh", b, 10)
		w.take(with(b, 3))
		for range 5 {
			if d := w.peek(b); !d.Allowed || d.Granted != 0 || d.Remaining != 7 {
				w.Errorf("peek after 3 of 10: got %+v, want allowed, granted 0, remaining 7", d)
			}
		}
	},
	"C05PeekAtTheLimit": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		w.take(with(b, 10))
		if d := w.peek(b); d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 {
			w.Errorf("peek at 10 of 10: got %+v, want a refusal with a wait", d)
		}
		c.Envoy = true
		b = w.bucket(c)
		w.take(with(b, 10))
		if d := w.peek(b); !d.Allowed || d.Remaining != 0 {
			w.Errorf("the reference's peek at 10 of 10: got %+v, want allowed with remaining 0", d)
		}
	},
	"SpendsToTheLimit": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		for i := int64(9); i >= 0; i-- {
			if d := w.take(b)[0]; !d.Allowed || d.Granted != 1 || d.Remaining != i || d.RetryAfter != 0 {
				w.Errorf("hit %d: got %+v, want allowed, granted 1, remaining %d, no wait", 10-i, d, i)
			}
		}
		for range 3 {
			if d := w.take(b)[0]; d.Allowed || d.Granted != 0 || d.Remaining != 0 || d.RetryAfter <= 0 {
				w.Errorf("hit past the limit: got %+v, want a refusal with a wait", d)
			}
		}
	},
	"RefusedHitsAreNotSpent": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		w.take(with(b, 7))
		if d := w.take(with(b, 4))[0]; d.Allowed || d.Remaining != 3 {
			w.Errorf("4 of the 3 left: got %+v, want a refusal with remaining 3", d)
		}
		if d := w.take(with(b, 3))[0]; !d.Allowed || d.Remaining != 0 {
			w.Errorf("3 of the 3 left: got %+v, want allowed with remaining 0", d)
		}
	},
	"HonestWaits": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		w.take(with(b, 4))
		w.wait(7 * time.Second)
		w.take(with(b, 5))
		w.wait(1234567 * time.Microsecond)
		w.admits(b, 10)
		for _, hits := range []int64{2, 10, 1, 9} {
			w.honest(b.Limit.Config().Algorithm.String(), with(b, hits), w.take(with(b, hits))[0])
			w.wait(3 * time.Second)
			w.admits(b, 10) // leave nothing
		}
	},
	"NeverFits": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		for _, hits := range []int64{11, bucket.MaxHits, bucket.MaxCost, 1<<63 - 1} {
			// C02: a cost is never taken for a refund, however many bits it has.
			if d := w.take(with(b, hits))[0]; d.Allowed || d.Granted != 0 || d.RetryAfter != bucket.Never {
				w.Errorf("%d hits on 10: got %+v, want a refusal for ever", hits, d)
			}
			w.remains("after hits that never fit", b, 10)
		}
	},
	"C60ZeroLimit": func(w *world, c bucket.Config) {
		c.Hits = 0
		b := w.bucket(c)
		for _, hits := range []int64{0, 1, 5, bucket.MaxCost, -1} {
			if d := w.take(with(b, hits))[0]; (d.Allowed && hits >= 0) || d.Granted != 0 || d.Remaining != 0 {
				w.Errorf("%d hits on a limit of 0: got %+v, want nothing granted", hits, d)
			}
		}
		if d := w.take(b)[0]; d.RetryAfter != bucket.Never {
			w.Errorf("a limit of 0: got a wait of %v, want never", d.RetryAfter)
		}
	},
	"C14RefundIsClamped": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		w.take(with(b, 10))
		if d := w.take(with(b, -3))[0]; !d.Allowed || d.Granted != -3 || d.Remaining != 3 {
			w.Errorf("refund of 3: got %+v, want 3 given back", d)
		}
		if d := w.take(with(b, -100))[0]; !d.Allowed || d.Granted != -7 || d.Remaining != 10 {
			w.Errorf("refund of 100: got %+v, want 7 given back", d)
		}
		w.take(with(b, -1<<62))
		if got := w.admits(b, 20); got != 10 {
			w.Errorf("after refunds: got %d admitted, want 10", got)
		}
	},
	"GiveBack": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		first := w.take(with(b, 4))[0]
		w.wait(time.Second)
		second := w.take(with(b, 6))[0]
		back := with(b, -6)
		back.Tick = second.Tick
		w.take(back)
		if got := w.peek(b).Remaining; got != 6 {
			w.Errorf("after giving 6 of 10 back: got %d remaining, want 6", got)
		}
		back = with(b, -4)
		back.Tick = first.Tick
		w.take(back)
		w.remains("after giving all back", b, 10)
	},
	"GiveBackComesTooLate": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		spent := w.take(with(b, 10))[0]
		w.wait(10 * time.Minute) // whatever the algorithm, what was spent then is forgotten
		w.take(with(b, 5))
		back := with(b, -10)
		back.Tick = spent.Tick
		w.take(back)
		if got := w.admits(b, 20); got > 10 {
			w.Errorf("after a late give-back: got %d admitted, want at most 10", got)
		}
	},
	"PartialGrant": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		w.take(with(b, 4))
		part := with(b, 100)
		part.AtLeast = 7
		if d := w.take(part)[0]; d.Allowed || d.Granted != 0 || d.Remaining != 6 {
			w.Errorf("at least 7 of the 6 left: got %+v, want a refusal", d)
		}
		part.AtLeast = 2
		if d := w.take(part)[0]; !d.Allowed || d.Granted != 6 || d.Remaining != 0 {
			w.Errorf("2 to 100 of the 6 left: got %+v, want 6 granted", d)
		}
		if d := w.take(part)[0]; d.Allowed || d.Granted != 0 {
			w.Errorf("2 to 100 of nothing left: got %+v, want a refusal", d)
		}
		b = w.bucket(c)
		part = with(b, 3)
		part.AtLeast = 1
		if d := w.take(part)[0]; !d.Allowed || d.Granted != 3 || d.Remaining != 7 {
			w.Errorf("1 to 3 of 10: got %+v, want 3 granted", d)
		}
	},
	"DuplicatesInOneRequest": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		got := w.take(with(b, 4), with(b, 5))
		if !got[0].Allowed || got[0].Granted != 4 || !got[1].Allowed || got[1].Granted != 5 || got[1].Remaining != 1 {
			w.Errorf("4 and 5 of 10: got %+v, want both granted and 1 remaining", got)
		}
		got = w.take(with(b, 1), with(b, 1))
		if !got[0].Allowed || got[1].Allowed || got[0].Granted != 0 || got[1].Granted != 0 {
			w.Errorf("1 and 1 of the 1 left: got %+v, want the second refused and nothing granted", got)
		}
		w.remains("after a refused request", b, 1)
	},
	"IdleIsFull": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		for range 5 {
			w.admits(b, 20)
			w.wait(24 * time.Hour)
			w.remains("after a day", b, 10) // C57, C63: full, and no fuller
		}
	},
	"LowerLimitClips": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		w.take(b)
		c.Hits, c.Burst = 5, 0
		b.Limit = w.limit(c)
		if got := w.admits(b, 20); got > 5 {
			w.Errorf("limit lowered to 5: got %d admitted at once, want at most 5", got)
		}
	},
	"HigherLimitKeepsWhatIsSpent": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		w.take(with(b, 10))
		c.Hits, c.Burst = 20, 0
		b.Limit = w.limit(c)
		if got := w.admits(b, 30); got > 10 {
			w.Errorf("limit raised to 20 with 10 spent: got %d admitted at once, want at most 10", got)
		}
		w.wait(10 * time.Minute)
		w.remains("under the new limit", b, 20)
	},
	"ClockStepsBack": func(w *world, c bucket.Config) {
		b := w.bucket(c)
		w.wait(30 * time.Second)
		w.admits(b, 20)
		w.wait(-500 * time.Millisecond)
		if got := w.admits(b, 5); got != 0 {
			w.Errorf("the clock stepped back: got %d admitted, want 0", got)
		}
		w.wait(10 * time.Minute)
		w.remains("after a while", b, 10)
	},
	"ConcurrentCallersAreExact": func(w *world, c bucket.Config) {
		const callers, calls = 16, 50
		b := w.bucket(c)
		if got := concurrently(w, callers, calls, b); got != 10 {
			w.Errorf("%d callers × %d calls on 10: got %d admitted, want 10", callers, calls, got)
		}
	},
	"MixedNeighbours": func(w *world, c bucket.Config) {
		// One request over buckets of all algorithms: each keeps its own arithmetic.
		charges := []store.Charge{with(w.bucket(c), 2)}
		for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
			charges = append(charges, with(w.bucket(bucket.Config{Algorithm: a, Hits: 5, Unit: bucket.Hour}), 3))
		}
		for i, d := range w.take(charges...) {
			want := charges[i].Limit.Config().Hits - charges[i].Hits
			if !d.Allowed || d.Granted != charges[i].Hits || d.Remaining != want {
				w.Errorf("charge %d: got %+v, want granted %d, remaining %d", i, d, charges[i].Hits, want)
			}
		}
		for i, d := range w.take(charges...) {
			if allowed := i == 0; d.Allowed != allowed || d.Granted != 0 {
				w.Errorf("again, charge %d: got %+v, want allowed %t and nothing granted", i, d, allowed)
			}
		}
	},
}
