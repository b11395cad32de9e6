package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
)

// queueRules hold answers so that ten a second pass, and at most five wait.
const queueRules = `
domain: shop
descriptors:
  - {key: api, rate_limit: {algorithm: leaky_bucket, unit: second, requests_per_unit: 10, burst: 5, max_delay: 1s}}
  - {key: slow, rate_limit: {algorithm: leaky_bucket, unit: second, requests_per_unit: 1, burst: 5, max_delay: 10s}}
  - {key: trial, shadow_mode: true, rate_limit: {algorithm: leaky_bucket, unit: second, requests_per_unit: 1, burst: 5, max_delay: 10s}}
  - {key: site, rate_limit: {algorithm: fixed_window, unit: year, requests_per_unit: 100}}
  - {key: used, rate_limit: {algorithm: fixed_window, unit: year, requests_per_unit: 100, debt: 100}}
`

// asking is one caller: when it was answered, counted from when the bubble began, and what.
type asking struct {
	after time.Duration
	v     *engine.Verdict
}

// ask decides in the background; wait for all with the returned function.
func ask(t *testing.T, e *engine.Engine, ctx context.Context, n int, request string) (wait func() []asking) {
	t.Helper()
	start := time.Now()
	out := make([]asking, n)
	var wg sync.WaitGroup
	for i := range n {
		req := parse(t, request)
		wg.Go(func() {
			v := new(engine.Verdict)
			if err := e.Decide(ctx, req, v); err != nil {
				t.Error(err)
			}
			out[i] = asking{time.Since(start), v}
		})
		synctest.Wait() // one after the other, so that the order in the queue is known
	}
	return func() []asking { wg.Wait(); return out }
}

func queueEngine(t *testing.T, o engine.Options) *engine.Engine {
	t.Helper()
	o.Now = time.Now
	if o.Store == nil {
		o.Store = memstore.New(memstore.Options{Now: time.Now})
	}
	return newEngine(t, queueRules, o)
}

func TestQueueHoldsAnswersToTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := queueEngine(t, engine.Options{})
		for i, got := range ask(t, e, t.Context(), 7, "shop | [api=x]")() {
			if want := time.Duration(i) * 100 * time.Millisecond; i < 5 {
				if got.v.Over || got.after != want {
					t.Errorf("%d: got over %v after %v, want false after %v", i, got.v.Over, got.after, want)
				}
				continue
			}
			if st := got.v.Statuses[0]; !got.v.Over || got.after != 0 || st.RetryAfter <= 0 {
				t.Errorf("%d: got %+v after %v, want a refusal at once, with a wait", i, st, got.after)
			}
		}
	})
}

func TestQueueRefusesWhatItsCallerHasNoTimeFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		ahead    int // in the queue, 100 ms each
		deadline time.Duration
		over     bool
	}{
		{"nobody ahead", 0, 20 * time.Millisecond, false},
		{"nobody ahead, hardly any time", 0, 3 * time.Millisecond, false},
		{"100 ms to wait and 4 to answer", 1, 104 * time.Millisecond, true},
		{"100 ms to wait and 5 to answer", 1, 105 * time.Millisecond, false},
		{"400 ms to wait", 4, 304 * time.Millisecond, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := queueEngine(t, engine.Options{})
				ahead := ask(t, e, t.Context(), tt.ahead, "shop | [api=x]")
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				got := ask(t, e, ctx, 1, "shop | [api=x]")()[0]
				want := time.Duration(tt.ahead) * 100 * time.Millisecond
				if tt.over {
					want = 0
				}
				if got.v.Over != tt.over || got.after != want {
					t.Errorf("got over %v after %v, want %v after %v", got.v.Over, got.after, tt.over, want)
				}
				ahead()
			})
		})
	}
}

func TestQueueCallerGoneGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := queueEngine(t, engine.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		first := ask(t, e, t.Context(), 1, "shop | [slow=x] [site=s] [used=u]h10")
		gone := ask(t, e, ctx, 1, "shop | [slow=x] [site=s] [used=u]h10")
		cancel()
		// Refused by its queue, at once, and charged nothing but what it reports as used already.
		got := gone()[0]
		if answer, want := shorthand.FormatAnswer(got.v), "OVER {OVER r0, OK r99, OK r80}"; answer != want || got.after != 0 {
			t.Errorf("gone: got %s after %v, want %s at once", answer, got.after, want)
		}
		// The next stands where the one who went would have: a second behind the first.
		got = ask(t, e, t.Context(), 1, "shop | [slow=x] [site=s] [used=u]h10")()[0]
		if answer, want := shorthand.FormatAnswer(got.v), "OK {OK r3, OK r98, OK r70}"; answer != want || got.after != time.Second {
			t.Errorf("next: got %s after %v, want %s after 1s", answer, got.after, want)
		}
		if got := first()[0]; got.v.Over || got.after != 0 {
			t.Errorf("first: got over %v after %v, want false at once", got.v.Over, got.after)
		}
	})
}

func TestQueueHasSoManyWaitersAndNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := queueEngine(t, engine.Options{Waiters: 2})
		waiting := ask(t, e, t.Context(), 3, "shop | [slow=x]") // the first is answered at once, two wait
		over := ask(t, e, t.Context(), 2, "shop | [slow=x]")()
		for _, got := range over {
			if st := got.v.Statuses[0]; !got.v.Over || got.after != 0 || st.RetryAfter <= 0 {
				t.Errorf("got %+v after %v, want a refusal at once, with a wait", st, got.after)
			}
		}
		// Another key's queue is empty, but no slot is free: what needs no wait still passes.
		if got := ask(t, e, t.Context(), 2, "shop | [slow=y]")(); got[0].v.Over || !got[1].v.Over {
			t.Errorf("got over %v and %v, want false and true", got[0].v.Over, got[1].v.Over)
		}
		for i, got := range waiting() {
			if want := time.Duration(i) * time.Second; got.v.Over || got.after != want {
				t.Errorf("%d: got over %v after %v, want false after %v", i, got.v.Over, got.after, want)
			}
		}
		// Nobody who was refused was charged: the fourth second is free.
		if got := ask(t, e, t.Context(), 1, "shop | [slow=x]")()[0]; got.v.Over || got.after != time.Second {
			t.Errorf("got over %v after %v, want false after 1s", got.v.Over, got.after)
		}
	})
}

func TestQueueOfAShadowRuleHoldsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := queueEngine(t, engine.Options{})
		for i, got := range ask(t, e, t.Context(), 4, "shop | [trial=x]")() {
			if got.v.Over || got.after != 0 {
				t.Errorf("%d: got over %v after %v, want false at once", i, got.v.Over, got.after)
			}
		}
		e = queueEngine(t, engine.Options{Shadow: true})
		for i, got := range ask(t, e, t.Context(), 4, "shop | [slow=x]")() {
			if got.v.Over || got.after != 0 {
				t.Errorf("--shadow, %d: got over %v after %v, want false at once", i, got.v.Over, got.after)
			}
		}
	})
}

func TestDrainAnswersWaitersAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := queueEngine(t, engine.Options{})
		waiting := ask(t, e, t.Context(), 4, "shop | [slow=x]")
		e.Drain()
		e.Drain()
		for i, got := range waiting() {
			if got.v.Over || got.after != 0 {
				t.Errorf("%d: got over %v after %v, want false at once", i, got.v.Over, got.after)
			}
		}
		if got := ask(t, e, t.Context(), 1, "shop | [slow=x]")()[0]; !got.v.Over || got.after != 0 {
			t.Errorf("after the drain: got over %v after %v, want true at once", got.v.Over, got.after)
		}
	})
}

// A request that is refused by another limit waits for nothing and leaves no place taken.
func TestQueueDoesNotHoldRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := queueEngine(t, engine.Options{})
		ask(t, e, t.Context(), 1, "shop | [slow=x]")()
		if got := ask(t, e, t.Context(), 1, "shop | [slow=x] [site=s]h101")()[0]; !got.v.Over || got.after != 0 {
			t.Errorf("got over %v after %v, want true at once", got.v.Over, got.after)
		}
		if got := ask(t, e, t.Context(), 1, "shop | [slow=x]")()[0]; got.v.Over || got.after != time.Second {
			t.Errorf("got over %v after %v, want false after 1s", got.v.Over, got.after)
		}
	})
}

// failingGiveBack counts the calls of a store, and is away for those that give hits back.
type failingGiveBack struct {
	store.Store
	calls atomic.Int64
}

func (s *failingGiveBack) Take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	s.calls.Add(1)
	if len(charges) > 0 && charges[0].Hits < 0 {
		for i := range charges {
			out[i] = store.Unpaid(&charges[i])
		}
		return store.ErrUnavailable
	}
	return s.Store.Take(ctx, charges, out)
}

func TestQueueCallerGoneWithItsStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &failingGiveBack{Store: memstore.New(memstore.Options{Now: time.Now})}
		e := queueEngine(t, engine.Options{Store: s})
		ctx, cancel := context.WithCancel(t.Context())
		ask(t, e, ctx, 1, "shop | [slow=x]")()
		gone := ask(t, e, ctx, 1, "shop | [slow=x]")
		cancel()
		if got := gone()[0]; !got.v.Over || s.calls.Load() != 3 {
			t.Errorf("got over %v after %d calls, want true after 3", got.v.Over, s.calls.Load())
		}
	})
}
