package memstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/script"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/storetest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(_ *testing.T, now func() time.Time) store.Store { return New(Options{Now: now}) })
}

// TestScripts performs the plays of the arithmetic on a store.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"credit", "window", "log"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			s := New(Options{Now: c.time})
			script.Run(t, filepath.Join("..", "..", "bucket", "testdata", family+".txt"), func(sc script.Charge) bucket.Outcome {
				sum := sha256.Sum256([]byte(sc.Bucket))
				c.set(time.UnixMicro(sc.Now))
				d := take(t, s, store.Charge{
					Key: store.Key(sum[:16]), Limit: sc.Limit, Hits: sc.Ask.Hits, AtLeast: sc.Ask.AtLeast, Tick: sc.Ask.Tick,
					MaxDelay: time.Duration(sc.Ask.MaxDelay) * time.Microsecond,
					Book:     map[bucket.Mode]store.Book{bucket.Report: store.BookAlways, bucket.Count: store.BookWhenRefuses}[sc.Ask.Mode],
				})[0]
				return bucket.Outcome{
					Allowed: d.Allowed, Granted: d.Granted, Remaining: d.Remaining,
					RetryAfter: micros(d.RetryAfter), ResetAfter: micros(d.ResetAfter), Delay: micros(d.Delay), Tick: d.Tick,
				}
			})
		})
	}
}

func micros(d time.Duration) int64 {
	if d == bucket.Never {
		return -1
	}
	return d.Microseconds()
}

// clock is a clock that tests move.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.set(time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC))
	return c
}

func (c *clock) time() time.Time      { return time.UnixMicro(c.now.Load()) }
func (c *clock) set(t time.Time)      { c.now.Store(t.UnixMicro()) }
func (c *clock) wait(d time.Duration) { c.now.Add(d.Microseconds()) }

func limit(t testing.TB, c bucket.Config) *bucket.Limit {
	t.Helper()
	l, err := bucket.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// key returns a key as evenly spread as real ones.
func key(n int) store.Key {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	sum := sha256.Sum256(b[:])
	return store.Key(sum[:16])
}

func take(t testing.TB, s *Store, charges ...store.Charge) []store.Decision {
	t.Helper()
	out := make([]store.Decision, len(charges))
	if err := s.Take(context.Background(), charges, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// plays returns n, or fewer under the race detector, which is slow.
func plays(n int) int {
	if raceEnabled {
		return n / 20
	}
	return n
}

func TestTakeDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates: nothing to see")
		return
	}
	ctx := context.Background()
	c := newClock()
	s := New(Options{Now: c.time})
	var charges []store.Charge
	for i, a := range []bucket.Algorithm{bucket.TokenBucket, bucket.FixedWindow, bucket.SlidingWindow} {
		l := limit(t, bucket.Config{Algorithm: a, Hits: 100, Unit: bucket.Minute})
		charges = append(charges,
			store.Charge{Key: key(i), Limit: l, Hits: 1},
			store.Charge{Key: key(10 + i), Limit: l, Hits: 1, Vote: store.VoteQuota},
			store.Charge{Key: key(i), Limit: l, Hits: 1, Book: store.BookWhenRefuses})
	}
	for n := 1; n <= len(charges); n++ {
		out := make([]store.Decision, n)
		// A thousand takes are admitted at first and refused later.
		if got := testing.AllocsPerRun(1000, func() {
			c.wait(100 * time.Millisecond)
			_ = s.Take(ctx, charges[:n], out)
		}); got != 0 {
			t.Errorf("%d charges: got %v allocations, want 0", n, got)
		}
	}
}

// TestClockStepsBack: one bucket under a clock that leaps about is never negative, never starves and never errs (I5).
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := New(Options{Now: c.time})
	l := limit(t, bucket.Config{Hits: 10, Unit: bucket.Minute})
	charge := store.Charge{Key: key(1), Limit: l, Hits: 10}
	if !take(t, s, charge)[0].Allowed {
		t.Fatal("a fresh bucket: got denied")
	}
	c.wait(-time.Hour)
	d := take(t, s, charge)[0]
	if d.Allowed || d.RetryAfter != time.Minute {
		t.Fatalf("an hour back: got %+v, want a minute's wait", d)
	}
	c.wait(time.Minute)
	if d := take(t, s, charge)[0]; !d.Allowed {
		t.Errorf("after the wait: got %+v, want allowed", d)
	}
}

func BenchmarkTake(b *testing.B) {
	l := limit(b, bucket.Config{Hits: 100, Unit: bucket.Second})
	keys := make([]store.Key, 1<<16)
	for i := range keys {
		keys[i] = key(i)
	}
	for name, charges := range map[string]int{"one charge": 1, "three charges": 3} {
		b.Run(name, func(b *testing.B) {
			s := New(Options{})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				cs, out := make([]store.Charge, charges), make([]store.Decision, charges)
				for i := rand.Int(); pb.Next(); i++ {
					for k := range cs {
						cs[k] = store.Charge{Key: keys[(i+k)%len(keys)], Limit: l, Hits: 1}
					}
					_ = s.Take(context.Background(), cs, out)
				}
			})
		})
	}
}
