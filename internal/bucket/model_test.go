package bucket_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// A model is a bucket as slowly and plainly as can be: products of 128 bits, lists of every grant, and waits found by trying
// instants. What the fast arithmetic does is right if it is what the models do.
type model interface {
	// settle brings the bucket to now, under l, and reports whether the clock was rebased.
	settle(l *bucket.Limit, now int64) bool
	// room returns how many more hits would fit at x, if nobody came until then; negative: so many too many.
	room(x int64) int64
	// ready reports whether a charge that fits would have to be held no longer than maxDelay at x.
	ready(x, maxDelay int64) bool
	// delay returns how long a charge that fits at now is held.
	delay(now int64) int64
	// largest returns the most hits that ever fit.
	largest() int64
	// book takes hits; giveBack returns hits of the grant with the given tick, 0 for any, and says how many it could.
	book(now, hits int64)
	giveBack(now, hits, tick int64) int64
	// booked returns the tick of what was just booked.
	tick(now int64) int64
	// reset returns the instant ResetAfter speaks of, and fades the one from which on the bucket is as good as absent.
	reset(now int64) int64
	fades() int64
	// state returns what is stored.
	state() bucket.State
	clone() model
}

// take is Limit.Take in terms of a model, which it changes if the outcome says so.
func take(m *model, l *bucket.Limit, now int64, a bucket.Ask) bucket.Outcome {
	cfg := l.Config()
	if cfg.Hits == 0 {
		return bucket.Outcome{RetryAfter: -1}
	}
	now = max(0, min(now, bucket.MaxTime))
	hits := max(-bucket.MaxCost, min(a.Hits, bucket.MaxCost))
	w := (*m).clone()
	var o bucket.Outcome
	o.Changed = w.settle(l, now)

	need := hits
	switch {
	case hits > 0 && a.AtLeast > 0:
		need = min(a.AtLeast, hits)
	case hits == 0 && cfg.Envoy:
		need = 0
	case hits == 0:
		need = 1
	}
	need += a.Before
	maxDelay := max(0, min(a.MaxDelay, cfg.MaxDelay.Microseconds()))
	fits := func(x int64) bool {
		return need <= w.largest() && w.room(x) >= need && w.ready(x, maxDelay)
	}

	o.Allowed = hits < 0 || fits(now)
	room := w.room(now)
	upTo := func(extra int64) int64 { // of the hits asked for, what fits if extra more may be used
		return max(0, min(hits, room+extra))
	}
	switch {
	case a.Mode == bucket.Look || hits == 0:
	case hits < 0:
		o.Granted = -w.giveBack(now, -hits, a.Tick)
	case o.Allowed:
		o.Granted = upTo(0)
		o.Delay = w.delay(now)
	case a.Mode == bucket.Report:
		o.Granted = upTo(cfg.Debt)
	case a.Mode == bucket.Count && cfg.Envoy && l.Family() != bucket.Credit:
		o.Granted = upTo(1)
	case a.Mode == bucket.Count:
		o.Granted = upTo(0)
	}
	if o.Granted > 0 {
		w.book(now, o.Granted)
	}
	if o.Granted != 0 {
		o.Changed = true
		o.Tick = w.tick(now)
	}

	o.Remaining = max(0, w.room(now))
	o.ResetAfter = w.reset(now) - now
	if !o.Allowed {
		o.RetryAfter = -1
		if x, ok := first(now+1, fits); ok {
			o.RetryAfter = x - now
		}
	}
	if o.Changed {
		if s := w.state(); s.Absent() {
			w = newModel(l.Family())
		} else {
			o.TTL = max(1, w.fades()-now)
		}
		*m = w
	}
	return o
}

// first returns the first instant not before from at which yes holds, which holds ever after.
func first(from int64, yes func(int64) bool) (int64, bool) {
	if from > bucket.MaxTime || !yes(bucket.MaxTime) {
		return 0, false
	}
	last := int64(bucket.MaxTime)
	for from < last {
		if middle := from + (last-from)/2; yes(middle) {
			last = middle
		} else {
			from = middle + 1
		}
	}
	return last, true
}

// until is first, or the end of time.
func until(from int64, yes func(int64) bool) int64 {
	if x, ok := first(from, yes); ok {
		return x
	}
	return bucket.MaxTime
}

// TestModel compares the arithmetic with the models on random plays.
func TestModel(t *testing.T) {
	t.Parallel()
	for _, family := range []bucket.Family{bucket.Credit, bucket.Window, bucket.Log} {
		t.Run(family.String(), func(t *testing.T) {
			t.Parallel()
			c := newChance(t)
			const perPlay = 100
			for range ops() / 3 / perPlay {
				playModel(t, c, family, perPlay)
				if t.Failed() {
					return
				}
			}
		})
	}
}

func newModel(family bucket.Family) model {
	switch family {
	case bucket.Window:
		return &windowModel{}
	case bucket.Log:
		return &logModel{}
	default:
		return &creditModel{}
	}
}

// playModel runs one bucket under a few limits.
func playModel(t *testing.T, c chance, family bucket.Family, asks int) {
	t.Helper()
	m := newModel(family)
	var s bucket.State
	limits := []*bucket.Limit{c.limit(family), c.limit(family), c.limit(family)}
	l, now := limits[0], c.start()
	var o bucket.Outcome
	var ticks []int64
	for i := range asks {
		if c.IntN(10) == 0 {
			l = pick(c, limits...)
		}
		now = max(-1, min(now+c.step(l, o), bucket.MaxTime+1))
		a := c.ask(l, ticks)
		before := clone(s)
		want := take(&m, l, now, a)
		o = l.Take(&s, now, a)
		if o != want || !sameState(s, m.state()) {
			t.Fatalf("ask %d: %+v\nat %d under %+v %+v\non %+v\n%s%s", i, a, now, l.Config(), l.Terms(), before,
				cmp.Diff(want, o), cmp.Diff(m.state(), s))
		}
		if o.Tick != 0 {
			ticks = append(ticks, o.Tick)
		}
	}
}

func clone(s bucket.State) bucket.State {
	s.Log = append([]bucket.Entry(nil), s.Log...)
	return s
}

func sameState(a, b bucket.State) bool {
	if a.Words != b.Words || len(a.Log) != len(b.Log) {
		return false
	}
	for i := range a.Log {
		if a.Log[i] != b.Log[i] {
			return false
		}
	}
	return true
}

// FuzzTake plays what the bytes say against the models.
func FuzzTake(f *testing.F) {
	f.Add([]byte("seed"))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := chance{newBytesRand(data)}
		for _, family := range families {
			playModel(t, c, family, 20)
		}
	})
}
