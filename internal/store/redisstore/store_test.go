package redisstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/script"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// patient is a timeout that a busy machine keeps.
const patient = 5 * time.Second

// charge returns a charge of one hit on the bucket called name.
func charge(t testing.TB, name string, c bucket.Config) store.Charge {
	t.Helper()
	l, err := bucket.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return store.Charge{Key: key(t, name), Limit: l, Policy: &bucket.Policy{}, Hits: 1}
}

// key returns the key of the bucket called name.
func key(t testing.TB, name string) store.Key {
	t.Helper()
	k, err := store.NewKeyer([]byte("a secret for tests"))
	if err != nil {
		t.Fatal(err)
	}
	return k.Key(name, nil)
}

// take asks a store that must answer.
func take(t testing.TB, s store.Store, charges ...store.Charge) []store.Decision {
	t.Helper()
	out := make([]store.Decision, len(charges))
	if err := s.Take(context.Background(), charges, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// algorithms is a limit of n hits a unit for each algorithm.
func algorithms(n int64, u bucket.Unit) []bucket.Config {
	var configs []bucket.Config
	for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
		configs = append(configs, bucket.Config{Algorithm: a, Hits: n, Unit: u})
	}
	return configs
}

// TestVectors performs the plays that the arithmetic performs.
func TestVectors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	paths, err := filepath.Glob("../../bucket/testdata/*.txt")
	if err != nil || len(paths) < 3 {
		t.Fatalf("vectors: got %q (%v), want a file a family", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			var now atomic.Int64
			s := open(t, redisstore.Options{
				URL: server.URL(), Timeout: patient, Now: func() time.Time { return time.UnixMicro(now.Load()) },
			})
			script.Run(t, path, func(c script.Charge) bucket.Outcome {
				now.Store(c.Now)
				return outcome(take(t, s, asked(t, c))[0])
			})
		})
	}
}

// asked returns what a script asks as a charge.
func asked(t testing.TB, c script.Charge) store.Charge {
	books := map[bucket.Mode]store.Book{
		bucket.Fit: store.BookIfAdmitted, bucket.Report: store.BookAlways, bucket.Count: store.BookWhenRefuses,
	}
	return store.Charge{
		Key: key(t, c.Bucket), Limit: c.Limit, Hits: c.Ask.Hits, AtLeast: c.Ask.AtLeast, Tick: c.Ask.Tick,
		MaxDelay: time.Duration(c.Ask.MaxDelay) * time.Microsecond, Book: books[c.Ask.Mode],
	}
}

// outcome returns a decision as a script expects it.
func outcome(d store.Decision) bucket.Outcome {
	micros := func(d time.Duration) int64 {
		if d == bucket.Never {
			return -1
		}
		return d.Microseconds()
	}
	return bucket.Outcome{
		Allowed: d.Allowed, Granted: d.Granted, Remaining: d.Remaining, RetryAfter: micros(d.RetryAfter),
		ResetAfter: micros(d.ResetAfter), Delay: micros(d.Delay), Tick: d.Tick,
	}
}

// TestExactFromTwoNodes asks one key of 500 an hour 64 × 5,000 times, half through each of two stores.
func TestExactFromTwoNodes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	now := func() time.Time { return time.Unix(1_835_395_200, 0) } // no window ends, nothing refills
	stores := [2]*redisstore.Store{}
	for i := range stores {
		stores[i] = open(t, redisstore.Options{URL: server.URL(), Timeout: patient, Now: now})
	}
	calls := 5000
	if raceEnabled {
		calls = 300
	}
	for _, c := range algorithms(500, bucket.Hour) {
		if c.Algorithm != bucket.TokenBucket {
			calls = 100 // the others' arithmetic is held to Go's elsewhere
		}
		b := charge(t, c.Algorithm.String(), c)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				out := make([]store.Decision, 1)
				for range calls {
					if err := stores[i%2].Take(context.Background(), []store.Charge{b}, out); err != nil {
						t.Error(err)
						return
					}
					if out[0].Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if got := allowed.Load(); got != 500 {
			t.Errorf("%s: 64 × %d calls on 500 an hour: got %d allowed, want 500", c.Algorithm, calls, got)
		}
	}
}

// TestC55ClockOfRedis shows that no clock but that of Redis decides: two stores of one Redis share its bucket.
func TestC55ClockOfRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	b := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	c := charge(t, "shared", bucket.Config{Hits: 4, Unit: bucket.Hour})
	before, err := server.Client().Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	allowed := 0
	for _, s := range []*redisstore.Store{a, a, a, b, b, a, b} {
		d := take(t, s, c)[0]
		if d.Allowed {
			allowed++
			if at := time.UnixMicro(d.Tick - 1); at.Before(before) || at.After(before.Add(time.Minute)) {
				t.Errorf("booked at %v, want the clock of Redis, %v", at, before)
			}
		}
	}
	if allowed != 4 {
		t.Errorf("7 calls through two stores on 4: got %d allowed, want 4", allowed)
	}
}

func TestProvisionalKeyIsNotSent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	known := charge(t, "known", bucket.Config{Hits: 1, Unit: bucket.Hour})
	early := known
	early.Key = new(store.Keyer).Key("early", nil)
	early.Policy = &bucket.Policy{OnFailure: bucket.FailClosed}
	out := make([]store.Decision, 2)
	if err := s.Take(t.Context(), []store.Charge{known, early}, out); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got error %v, want ErrUnavailable", err)
	}
	want := []store.Decision{{Allowed: true, Origin: store.Unavailable}, {Origin: store.Unavailable}}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n, err := server.Client().DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("keys in redis: got %d (%v), want 0", n, err)
	}
}

func TestTooManyCharges(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL(), Timeout: patient})
	charges := make([]store.Charge, store.MaxCharges+1)
	for i := range charges {
		charges[i] = charge(t, "a", bucket.Config{Hits: 1, Unit: bucket.Hour})
	}
	if err := s.Take(t.Context(), charges, make([]store.Decision, len(charges))); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%d charges: got error %v, want ErrUnavailable", len(charges), err)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, err := redisstore.New(redisstore.Options{URL: server.URL(), Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	c := []store.Charge{charge(t, "a", bucket.Config{Hits: 1 << 20, Unit: bucket.Hour})}
	var wg sync.WaitGroup
	started := make(chan struct{}, 16)
	for range 16 {
		wg.Go(func() {
			out := make([]store.Decision, 1)
			for i := range 100_000 {
				if i == 1 {
					started <- struct{}{}
				}
				if err := s.Take(context.Background(), c, out); err != nil {
					if !errors.Is(err, store.ErrUnavailable) {
						t.Errorf("got error %v, want ErrUnavailable", err)
					}
					return
				}
			}
			t.Error("the store never closed")
		})
	}
	for range 16 {
		<-started
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	wg.Wait()
}
