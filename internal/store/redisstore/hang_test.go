package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// TestConnectionsKilled ends the connections again and again: whoever had a charge under way is told so, and no charge
// is booked twice.
func TestConnectionsKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	c := charge(t, "a", bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1 << 30, Unit: bucket.Year})
	var paid, unpaid atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			out := make([]store.Decision, 1)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Take(context.Background(), []store.Charge{c}, out); err == nil {
					paid.Add(1)
				} else {
					unpaid.Add(1)
				}
			}
		})
	}
	for range 20 {
		before := paid.Load()
		redistest.Await(t, 10*time.Second, "calls that are paid", func() bool { return paid.Load() > before+50 })
		if err := server.Client().ClientKillByFilter(t.Context(), "type", "normal", "skipme", "yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	c.Hits = 0
	booked := 1<<30 - take(t, s, c)[0].Remaining
	if booked < paid.Load() || booked > paid.Load()+unpaid.Load() {
		t.Errorf("got %d hits booked, want %d paid and at most %d more", booked, paid.Load(), unpaid.Load())
	}
}

// TestHang stops the process: every caller is answered in time, what had not been sent never is, and afterwards all is well.
func TestHang(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const timeout = 20 * time.Millisecond
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: timeout})
	wantPaid(t, "before", s)
	c := charge(t, "a", bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1 << 20, Unit: bucket.Year})
	server.Signal(syscall.SIGSTOP)
	var longest, departed atomic.Int64
	var wg sync.WaitGroup
	const callers, calls = 300, 5
	for range callers {
		wg.Go(func() {
			out := make([]store.Decision, 1)
			for range calls {
				start := time.Now()
				err := s.Take(context.Background(), []store.Charge{c}, out)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a server that hangs: got error %v, want a deadline", err)
				}
				if !errors.Is(err, store.ErrUnsent) {
					departed.Add(1)
				}
				for took := time.Since(start).Nanoseconds(); ; {
					if old := longest.Load(); took <= old || longest.CompareAndSwap(old, took) {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	// The promise is the timeout and 10 ms; the rest is for a machine that runs other tests.
	if got := time.Duration(longest.Load()); got > timeout+500*time.Millisecond {
		t.Errorf("longest call: got %v, want about %v", got, timeout)
	}
	server.Signal(syscall.SIGCONT)
	wantPaid(t, "after", s)
	c.Hits = 0
	out := make([]store.Decision, 1)
	redistest.Await(t, 10*time.Second, "an answer", func() bool {
		return s.Take(context.Background(), []store.Charge{c}, out) == nil
	})
	if booked := 1<<20 - out[0].Remaining; booked > departed.Load() || departed.Load() == callers*calls {
		t.Errorf("got %d hits booked, and %d of %d calls that may have been; want no more than those, and fewer than all",
			booked, departed.Load(), callers*calls)
	}
}

func TestServerComesAndGoes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: 100 * time.Millisecond})
	wantUnpaid(t, "absent", s, true)
	if err := s.Ping(t.Context()); err == nil {
		t.Error("ping of an absent server: got no error, want one")
	}
	if _, err := s.Secret(t.Context()); err == nil {
		t.Error("secret of an absent server: got no error, want one")
	}
	server.Restart()
	wantPaid(t, "started", s)
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	server.Stop()
	// The first to notice had sent its call into a connection that had ended.
	redistest.Await(t, 10*time.Second, "connections noticed as ended", func() bool {
		return errors.Is(s.Ping(t.Context()), store.ErrUnsent)
	})
	wantUnpaid(t, "stopped", s, true)
	server.Restart()
	wantPaid(t, "started again", s)
}

// TestCallerLeaves ends a caller's context while Redis is slow: it is answered at once.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	wantPaid(t, "before", s)
	if err := server.Client().Do(t.Context(), "client", "pause", "100000", "write").Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	out := make([]store.Decision, 1)
	go func() {
		result <- s.Take(ctx, []store.Charge{charge(t, "a", bucket.Config{Hits: 1, Unit: bucket.Hour})}, out)
	}()
	cancel()
	if err := <-result; !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want ErrUnavailable and the context's", err)
	}
	if err := server.Client().Do(t.Context(), "client", "unpause").Err(); err != nil {
		t.Fatal(err)
	}
	wantPaid(t, "after", s)
}
