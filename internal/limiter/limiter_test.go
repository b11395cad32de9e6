package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
	"github.com/ratelimitd/ratelimitd/internal/store/storetest"
)

var _ store.Store = (*Limiter)(nil)

// With its tiers off, a limiter means what its store means.
func TestContract(t *testing.T) {
	t.Parallel()
	alive := OneShard("0", func(context.Context) error { return nil })
	t.Run("on the caller's goroutine", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, now func() time.Time) store.Store {
			return open(t, Options{Store: memstore.New(memstore.Options{Now: now}), OwnTimer: true, Topology: alive, Remember: -1})
		})
	})
	t.Run("on a goroutine of its own", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, now func() time.Time) store.Store {
			return open(t, Options{Store: memstore.New(memstore.Options{Now: now}), Timeout: time.Minute, Topology: alive, Remember: -1})
		})
	})
	// A fallback over a healthy primary is the primary.
	t.Run("with a fallback that is not needed", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, now func() time.Time) store.Store {
			return open(t, Options{
				Store: memstore.New(memstore.Options{Now: now}), OwnTimer: true, Topology: alive, Remember: -1, Local: newPrimary(),
			})
		})
	})
	// What is denied from memory is told as the store would have told it, to the microsecond.
	t.Run("denied recently", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, now func() time.Time) store.Store {
			return asStore{open(t, Options{Store: memstore.New(memstore.Options{Now: now}), OwnTimer: true, Topology: alive, Now: now})}
		})
	})
	// C41: one node's fallback means what its store means.
	t.Run("with nothing but a fallback", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, now func() time.Time) store.Store {
			dead := newPrimary()
			dead.fault.Store(down)
			return asStore{open(t, Options{Store: dead, OwnTimer: true, Local: memstore.New(memstore.Options{Now: now})})}
		})
	})
}

// asStore relabels what was decided here as paid by the store. No limit of it fails closed, or says that it takes refunds:
// that would end denials early.
type asStore struct{ *Limiter }

func (s asStore) Take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Policy = &bucket.Policy{Rule: "any"}
	}
	err := s.Limiter.Take(ctx, charges, out)
	for i := range out {
		if out[i].Origin == store.FromLocal || out[i].Origin == store.FromDeniedCache {
			out[i].Origin = store.FromStore
		}
	}
	return err
}

func TestOptions(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{}); err == nil {
		t.Error("no store: got no error")
	}
	if _, err := New(Options{Store: newPrimary(), Timeout: -1}); err == nil {
		t.Error("a negative timeout: got no error")
	}
}

// A store that hangs for ever holds no decision longer than the timeout, and no more goroutines than calls in flight.
func TestHangingStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		var held atomic.Int64
		s := storeFunc(func(context.Context, []store.Charge, []store.Decision) error {
			held.Add(1)
			<-hung
			return nil
		})
		l := open(t, Options{Store: s, Local: newPrimary(), MaxInFlight: 100})
		c := charge(t, perHour(1_000_000), fails)
		start := time.Now()
		var wg sync.WaitGroup
		for range 10_000 {
			wg.Go(func() {
				if d := take(l, c)[0]; d.Origin != store.FromLocal || !d.Allowed {
					t.Errorf("got %+v, want a decision by the fallback", d)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 5*time.Millisecond {
			t.Errorf("got the last of 10,000 decisions after %v, want the timeout of 5ms", took)
		}
		if got := held.Load(); got != 100 {
			t.Errorf("got %d calls held by the store, want the 100 that may be in flight", got)
		}
		close(hung)
	})
}

// The same on a real clock, which is what callers have.
func TestHangingStoreOnARealClock(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	defer close(hung)
	s := storeFunc(func(context.Context, []store.Charge, []store.Decision) error { <-hung; return nil })
	l := open(t, Options{Store: s, Local: newPrimary()})
	c := charge(t, perHour(1_000_000), fails)
	best := time.Hour
	for range 20 { // one of them meets a machine that is not busy
		start := time.Now()
		take(l, c)
		best = min(best, time.Since(start))
	}
	if best < 5*time.Millisecond || best > 15*time.Millisecond {
		t.Errorf("got the quickest of 20 decisions after %v, want 5…15ms", best)
	}
}

type storeFunc func(context.Context, []store.Charge, []store.Decision) error

func (f storeFunc) Take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	return f(ctx, charges, out)
}

// An answer that comes after its caller left is dropped, and touches nothing that the caller owns.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		p.fault.Store(&fault{hang: 50 * time.Millisecond, applied: true})
		l := open(t, Options{Store: p, Local: newPrimary()})
		charges, out := []store.Charge{charge(t, perHour(10), fails)}, make([]store.Decision, 1)
		if err := l.Take(t.Context(), charges, out); err != nil {
			t.Fatal(err)
		}
		want := out[0]
		time.Sleep(time.Second)
		if out[0] != want {
			t.Errorf("a decision was overwritten after the call: got %+v, want %+v", out[0], want)
		}
	})
}

// A caller's own, shorter time is kept; and a caller that leaves early does not count against the store.
func TestCallersTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		p.fault.Store(&fault{hang: 4 * time.Millisecond, applied: true})
		l := open(t, Options{Store: p, Local: newPrimary(), Topology: OneShard("0", dies)})
		c := charge(t, perHour(1_000_000), fails)
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
			start := time.Now()
			out := make([]store.Decision, 1)
			if err := l.Take(ctx, []store.Charge{c}, out); err != nil || out[0].Origin != store.FromLocal {
				t.Errorf("got %+v, %v, want a decision by the fallback", out[0], err)
			}
			if took := time.Since(start); took != 2*time.Millisecond {
				t.Errorf("got a decision after %v, want 2ms", took)
			}
			cancel()
		}
		if got := l.Down(); got != nil {
			t.Errorf("callers who left early opened the breaker: %v", got)
		}
		for range 100 { // half the timeout is slow, whoever lost patience
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
			_ = l.Take(ctx, []store.Charge{c}, make([]store.Decision, 1))
			cancel()
		}
		if diff := cmp.Diff([]string{"0"}, l.Down()); diff != "" {
			t.Errorf("down: -want +got:\n%s", diff)
		}
		time.Sleep(time.Second)
	})
}

func dies(context.Context) error { return errIll }

func TestSaturated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		p.fault.Store(&fault{hang: 4 * time.Millisecond, applied: true, dead: func(*store.Charge) bool { return false }})
		l := open(t, Options{Store: p, OwnTimer: true, Local: newPrimary(), MaxInFlight: 3, Topology: OneShard("0", dies)})
		var paid, local atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				switch take(l, charge(t, perHour(10), fails))[0].Origin {
				case store.FromStore:
					paid.Add(1)
				case store.FromLocal:
					local.Add(1)
				}
			})
		}
		wg.Wait()
		if paid.Load() != 3 || local.Load() != 97 {
			t.Errorf("got %d paid and %d decided here, want 3 and 97", paid.Load(), local.Load())
		}
		if l.Down() != nil {
			t.Error("calls that were not made opened the breaker")
		}
	})
}

// An error that is no ErrUnavailable, or that names no charge, leaves no decision to believe.
func TestStrangeErrors(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"unknown": errIll, "of no charge": store.ErrUnavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storeFunc(func(_ context.Context, _ []store.Charge, out []store.Decision) error {
				out[0] = store.Decision{Allowed: true, Granted: 1, Remaining: 1}
				return err
			})
			c := charge(t, perHour(10), bucket.Policy{OnFailure: bucket.FailClosed})
			out := make([]store.Decision, 1)
			err := open(t, Options{Store: s, OwnTimer: true}).Take(t.Context(), []store.Charge{c}, out)
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("got error %v, want one that wraps ErrUnavailable", err)
			}
			if out[0].Allowed || out[0].Origin != store.Unavailable {
				t.Errorf("got %+v, want a refusal for want of a store", out[0])
			}
		})
	}
}

// The healthy path adds no allocation to the store's own.
func TestAllocations(t *testing.T) {
	s := storeFunc(func(_ context.Context, _ []store.Charge, out []store.Decision) error {
		for i := range out {
			out[i] = store.Decision{Allowed: true, Granted: 1, Remaining: 9, ResetAfter: time.Minute}
		}
		return nil
	})
	l := open(t, Options{Store: s, OwnTimer: true, Local: newPrimary(), Topology: OneShard("0", dies)})
	charges := []store.Charge{charge(t, perHour(10), fails), charge(t, perHour(20), fails)}
	out := make([]store.Decision, 2)
	ctx := t.Context()
	if got := testing.AllocsPerRun(1000, func() { _ = l.Take(ctx, charges, out) }); got != 0 {
		t.Errorf("got %v allocations a request that the store pays, want 0", got)
	}

	denying := storeFunc(func(_ context.Context, _ []store.Charge, out []store.Decision) error {
		for i := range out {
			out[i] = store.Decision{RetryAfter: time.Hour, ResetAfter: time.Hour}
		}
		return nil
	})
	l = open(t, Options{Store: denying, OwnTimer: true})
	_ = l.Take(ctx, charges, out)
	if got := testing.AllocsPerRun(1000, func() { _ = l.Take(ctx, charges, out) }); got != 0 || out[0].Origin != store.FromDeniedCache {
		t.Errorf("got %v allocations a request denied from memory (%+v), want 0", got, out[0])
	}
}

func BenchmarkTake(b *testing.B) {
	paid := storeFunc(func(_ context.Context, _ []store.Charge, out []store.Decision) error {
		out[0] = store.Decision{Allowed: true, Granted: 1, Remaining: 9, ResetAfter: time.Minute}
		return nil
	})
	denied := storeFunc(func(_ context.Context, _ []store.Charge, out []store.Decision) error {
		out[0] = store.Decision{RetryAfter: time.Hour, ResetAfter: time.Hour}
		return nil
	})
	for name, o := range map[string]Options{
		"paid":    {Store: paid, OwnTimer: true, Topology: OneShard("0", dies)},
		"guarded": {Store: paid, Topology: OneShard("0", dies)},
		"denied":  {Store: denied, OwnTimer: true},
	} {
		b.Run(name, func(b *testing.B) {
			l := open(b, o)
			c := charge(b, perHour(10), fails)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				charges, out := []store.Charge{c}, make([]store.Decision, 1)
				charges[0].Key = key()
				for pb.Next() {
					_ = l.Take(b.Context(), charges, out)
				}
			})
		})
	}
}
