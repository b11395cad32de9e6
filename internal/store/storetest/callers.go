package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// concurrently takes c calls times from each of callers goroutines and returns how many were allowed.
func concurrently(w *world, callers, calls int, charges ...store.Charge) int64 {
	w.Helper()
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			out := make([]store.Decision, len(charges))
			for range calls {
				if err := w.store.Take(context.Background(), charges, out); err != nil {
					w.Errorf("take: %v", err)
					return
				}
				if store.Admitted(charges, out) {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return allowed.Load()
}

// callers is what concerns those who ask, rather than what they ask.
var callers = map[string]func(*world){
	"C09PairUnderConcurrency": func(w *world) {
		user := w.bucket(bucket.Config{Algorithm: bucket.FixedWindow, Hits: 50, Unit: bucket.Hour})
		site := w.bucket(bucket.Config{Algorithm: bucket.FixedWindow, Hits: 60, Unit: bucket.Hour})
		if got := concurrently(w, 10, 50, user, site); got != 50 {
			w.Errorf("500 requests on 50 and 60: got %d admitted, want 50", got)
		}
		w.remains("the limit that was fine", site, 10)
	},
	"CrossingPairsUnderConcurrency": func(w *world) {
		a := w.bucket(bucket.Config{Hits: 30, Unit: bucket.Hour})
		b := w.bucket(bucket.Config{Hits: 30, Unit: bucket.Hour})
		var wg sync.WaitGroup
		var got [2]int64
		wg.Go(func() { got[0] = concurrently(w, 4, 20, a, b) })
		wg.Go(func() { got[1] = concurrently(w, 4, 20, b, a) })
		wg.Wait()
		if sum := got[0] + got[1]; sum != 30 {
			w.Errorf("160 requests in both orders on 30 and 30: got %d admitted, want 30", sum)
		}
	},
	"NoCharges": func(w *world) {
		if err := w.store.Take(context.Background(), nil, nil); err != nil {
			w.Errorf("no charges: got %v, want no error", err)
		}
	},
	"MostCharges": func(w *world) {
		charges := make([]store.Charge, store.MaxCharges)
		for i := range charges {
			charges[i] = with(w.bucket(bucket.Config{Hits: int64(i + 1), Unit: bucket.Hour}), int64(i+1))
		}
		for i, d := range w.take(charges...) {
			if !d.Allowed || d.Granted != int64(i+1) || d.Remaining != 0 {
				w.Errorf("charge %d: got %+v, want granted %d, remaining 0", i, d, i+1)
			}
		}
		for i, d := range w.take(charges...) {
			if d.Allowed || d.Granted != 0 {
				w.Errorf("again, charge %d: got %+v, want a refusal", i, d)
			}
		}
	},
	"KeepsNoSlice": func(w *world) {
		b := w.bucket(bucket.Config{Hits: 10, Unit: bucket.Hour})
		charges, out := []store.Charge{b}, make([]store.Decision, 1)
		if err := w.store.Take(context.Background(), charges, out); err != nil {
			w.Fatal(err)
		}
		charges[0], out[0] = store.Charge{}, store.Decision{}
		w.remains("after the caller reused its slices", b, 9)
		if out[0] != (store.Decision{}) {
			w.Errorf("a decision was written after the call: %+v", out[0])
		}
	},
	"OverwritesDecisions": func(w *world) {
		b := w.bucket(bucket.Config{Hits: 10, Unit: bucket.Hour})
		out := []store.Decision{{
			Granted: 7, Remaining: 7, RetryAfter: 7, ResetAfter: 7, Delay: 7, Tick: 7, Origin: store.Unavailable,
		}}
		if err := w.store.Take(context.Background(), []store.Charge{with(b, 11)}, out); err != nil {
			w.Fatal(err)
		}
		if d := out[0]; d.Granted != 0 || d.Remaining != 10 || d.RetryAfter != bucket.Never || d.Delay != 0 || d.Tick != 0 || d.Origin != store.FromStore {
			w.Errorf("a refusal over an old decision: got %+v, want none of the old values", d)
		}
	},
	"EndedContext": func(w *world) {
		b := w.bucket(bucket.Config{Hits: 10, Unit: bucket.Hour})
		b.Policy = &bucket.Policy{OnFailure: bucket.FailClosed}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		out := make([]store.Decision, 1)
		err := w.store.Take(ctx, []store.Charge{b}, out)
		switch {
		case err == nil: // a store may decide faster than it could look
			if !out[0].Allowed || out[0].Granted != 1 {
				w.Errorf("no error: got %+v, want a decision", out[0])
			}
		case !errors.Is(err, store.ErrUnavailable):
			w.Errorf("got error %v, want one that wraps ErrUnavailable", err)
		default:
			if want := store.Unpaid(&b); out[0] != want {
				w.Errorf("unavailable: got %+v, want %+v", out[0], want)
			}
			w.remains("after a call that was not made", b, 10)
		}
	},
	"ManyContextsEndAtRandom": func(w *world) {
		// I3: a caller that leaves never tears its request in two.
		a := w.bucket(bucket.Config{Hits: 1 << 20, Unit: bucket.Year})
		b := w.bucket(bucket.Config{Hits: 1 << 20, Unit: bucket.Year})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				out := make([]store.Decision, 2)
				for j := range 100 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i*j)*time.Microsecond)
					err := w.store.Take(ctx, []store.Charge{a, b}, out)
					cancel()
					if err != nil && !errors.Is(err, store.ErrUnavailable) {
						w.Errorf("take: %v", err)
					}
				}
			})
		}
		wg.Wait()
		// One request looks at both, so what is still in flight does not matter.
		got := w.take(with(a, 0), with(b, 0))
		if got[0].Remaining != got[1].Remaining {
			w.Errorf("got %d and %d remaining, want the same", got[0].Remaining, got[1].Remaining)
		}
	},
}
