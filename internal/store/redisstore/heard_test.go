package redisstore_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// Of a request whose caller did not wait it is heard what Redis says of it, or that it says nothing.
func TestLateAnswersAreHeard(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	// A caller's time and a connection's (450 ms) are far apart, so that a busy machine does not give the connection up too.
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: 200 * time.Millisecond})
	c := charge(t, "a", bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1000, Unit: bucket.Year})
	paid := int64(0)
	ask := func() error {
		err := s.Take(t.Context(), []store.Charge{c}, make([]store.Decision, 1))
		if err == nil {
			paid++
		}
		return err
	}
	type end struct {
		out []store.Decision
		err error
	}
	// hear returns what became of a request that was late, asked after hinder.
	hear := func(hinder func()) end {
		t.Helper()
		ends := make(chan end, 1)
		redistest.Await(t, 10*time.Second, "a late request", func() bool {
			var late *store.Late
			hinder()
			if !errors.As(ask(), &late) {
				return false
			}
			late.Then(func(out []store.Decision, err error) { ends <- end{out, err} })
			return true
		})
		return <-ends
	}
	redistest.Await(t, 10*time.Second, "redis to pay", func() bool { return ask() == nil })

	// It may be given up before the pause is over all the same.
	redistest.Await(t, 30*time.Second, "an answer that is late", func() bool {
		got := hear(func() { // each time: a busy machine may ask when most of the pause is over
			if err := server.Client().Do(t.Context(), "client", "pause", 300, "all").Err(); err != nil {
				t.Fatal(err)
			}
		})
		if got.err == nil && (!got.out[0].Allowed || got.out[0].Granted != 1 || got.out[0].Remaining >= 1000-paid) {
			t.Errorf("of a request that Redis answered late: got %+v, want it granted and fewer than %d left", got.out[0], 1000-paid)
		}
		return got.err == nil
	})

	server.Signal(syscall.SIGSTOP)
	if got := hear(func() {}); !errors.Is(got.err, store.ErrUnavailable) || errors.Is(got.err, store.ErrUnsent) {
		t.Errorf("of a request that Redis never answered: got %+v, want it unavailable and perhaps applied", got)
	}
	server.Signal(syscall.SIGCONT)
}
