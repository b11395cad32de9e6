package memstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

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

// TestExactUnderConcurrency: 64 clients of 5,000 calls on 500 an hour are allowed exactly 500 (C09).
func TestExactUnderConcurrency(t *testing.T) {
	t.Parallel()
	const clients, calls = 64, 5000
	for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			s := New(Options{Now: newClock().time})
			c := store.Charge{Key: key(1), Limit: limit(t, bucket.Config{Algorithm: a, Hits: 500, Unit: bucket.Hour}), Hits: 1}
			calls := calls
			if raceEnabled || a == bucket.SlidingLog {
				calls /= 10
			}
			var allowed atomic.Int64
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for range calls {
						if take(t, s, c)[0].Allowed {
							allowed.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if got := allowed.Load(); got != 500 {
				t.Errorf("got %d allowed, want 500", got)
			}
		})
	}
}

// TestAllOrNothingUnderConcurrency: requests on overlapping buckets, in any order, admit just what both of their limits have, and a
// refused one spends nothing (C07, C09).
func TestAllOrNothingUnderConcurrency(t *testing.T) {
	t.Parallel()
	s := New(Options{Now: newClock().time})
	const users, perUser, site = 20, 50, 700
	perHour := func(hits int64) *bucket.Limit { return limit(t, bucket.Config{Hits: hits, Unit: bucket.Hour}) }
	user, all := perHour(perUser), perHour(site)
	var admitted [users]atomic.Int64
	var wg sync.WaitGroup
	for client := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(client), 0))
			for range 500 {
				u := r.IntN(users)
				charges := []store.Charge{{Key: key(u), Limit: user, Hits: 1}, {Key: key(-1), Limit: all, Hits: 1}}
				if r.IntN(2) == 0 {
					charges[0], charges[1] = charges[1], charges[0]
				}
				if out := take(t, s, charges...); store.Admitted(charges, out) {
					admitted[u].Add(1)
				}
			}
		})
	}
	wg.Wait()
	total := int64(0)
	for u := range users {
		n := admitted[u].Load()
		total += n
		if got := take(t, s, store.Charge{Key: key(u), Limit: user})[0].Remaining; got != perUser-n {
			t.Errorf("user %d: got %d remaining, want %d", u, got, perUser-n)
		}
	}
	if got := take(t, s, store.Charge{Key: key(-1), Limit: all})[0].Remaining; got != site-total || got != 0 {
		t.Errorf("site: got %d remaining after %d of %d, want none", got, total, site)
	}
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

// TestFirstRefusedWait: the first refused charge of a request tells how long to wait for it and those before it, also when
// they are on one bucket.
func TestFirstRefusedWait(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 20_000 {
		c := newClock()
		s := New(Options{Now: c.time})
		l := limit(t, bucket.Config{
			Algorithm: bucket.Algorithm(r.IntN(int(bucket.SlidingLog) + 1)), Hits: 1 + r.Int64N(10), Unit: bucket.Minute,
		})
		for range r.IntN(4) {
			take(t, s, store.Charge{Key: key(i), Limit: l, Hits: 1 + r.Int64N(4)})
			c.wait(time.Duration(r.Int64N(int64(time.Minute))))
		}
		charges := make([]store.Charge, 1+r.IntN(4))
		for k := range charges {
			charges[k] = store.Charge{Key: key(i), Limit: l, Hits: r.Int64N(4)}
		}
		first := -1
		out := take(t, s, charges...)
		for k := range out {
			if !out[k].Allowed {
				first = k
				break
			}
		}
		if first < 0 {
			continue
		}
		wait := out[first].RetryAfter
		if wait == bucket.Never {
			wait = 24 * time.Hour
		}
		c.wait(wait - time.Microsecond)
		if out := take(t, s, charges[:first+1]...); store.Admitted(charges[:first+1], out) {
			t.Fatalf("%v %+v: admitted before its wait of %v", l.Config(), charges, wait)
		}
		if out[first].RetryAfter == bucket.Never {
			continue
		}
		c.wait(time.Microsecond)
		if out := take(t, s, charges[:first+1]...); !store.Admitted(charges[:first+1], out) {
			t.Fatalf("%v %+v: refused after its wait of %v: %+v", l.Config(), charges, wait, out)
		}
	}
}

// TestAdmittedIsInTurn: the charges of an admitted request are answered as if each came by itself.
func TestAdmittedIsInTurn(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	limits := make([]*bucket.Limit, 8)
	for i := range limits {
		limits[i] = limit(t, bucket.Config{
			Algorithm: bucket.Algorithm(i % 6), Hits: 20, Unit: bucket.Minute, Debt: int64(i%2) * 10,
		})
	}
	c := newClock()
	together, alone := New(Options{Now: c.time}), New(Options{Now: c.time})
	for range 50_000 {
		c.wait(time.Duration(r.Int64N(int64(10 * time.Second))))
		charges := make([]store.Charge, 1+r.IntN(6))
		for k := range charges {
			at := r.IntN(len(limits))
			charges[k] = store.Charge{
				Key: key(at), Limit: limits[at], Hits: r.Int64N(9) - 2,
				Vote: store.Vote(r.IntN(4)), Book: store.Book(r.IntN(2)),
			}
		}
		got := take(t, together, charges...)
		admitted := store.Admitted(charges, got)
		for k, c := range charges {
			if !admitted && c.Book != store.BookAlways {
				continue
			}
			c.Vote = store.VoteEnforce
			want := take(t, alone, c)[0]
			if admitted {
				if diff := cmp.Diff(want, got[k]); diff != "" {
					t.Fatalf("charge %d of %+v: (-alone +together)\n%s", k, charges, diff)
				}
			}
		}
		// What a refused request booked is its reports.
		for at, l := range limits {
			peek := store.Charge{Key: key(at), Limit: l}
			if diff := cmp.Diff(take(t, alone, peek), take(t, together, peek)); diff != "" {
				t.Fatalf("after %+v (admitted: %v): (-alone +together)\n%s", charges, admitted, diff)
			}
		}
	}
}

// TestManyKeys: a million distinct values stay under the cap, in count and in bytes, and push out no bucket that matters (S1).
func TestManyKeys(t *testing.T) {
	keys, most := 1_000_000, 100_000
	if raceEnabled {
		keys, most = 100_000, 10_000
	}
	reg := prometheus.NewRegistry()
	s := New(Options{MaxBuckets: most, Now: newClock().time, Registerer: reg})
	l := limit(t, bucket.Config{Hits: 1, Unit: bucket.Hour})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range keys {
		if !take(t, s, store.Charge{Key: key(i), Limit: l, Hits: 1})[0].Allowed {
			t.Fatalf("key %d: got denied, want allowed", i)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if got := s.Len(); got > most || got < most*99/100 {
		t.Errorf("got %d buckets, want %d", got, most)
	}
	perBucket := float64(after.HeapAlloc-before.HeapAlloc) / float64(s.Len())
	t.Logf("%.1f bytes a bucket", perBucket)
	if perBucket > 120 {
		t.Errorf("got %.1f bytes a bucket, want at most 120", perBucket)
	}
	denied := 0
	for i := range keys {
		if !take(t, s, store.Charge{Key: key(i), Limit: l})[0].Allowed {
			denied++
		}
	}
	if denied != s.Len() {
		t.Errorf("got %d keys still denied, want all %d that are kept", denied, s.Len())
	}
	buckets, overflows := metric(t, reg, "ratelimitd_memstore_buckets"), metric(t, reg, "ratelimitd_memstore_overflow_total")
	if buckets != float64(s.Len()) || overflows != float64(2*(keys-s.Len())) {
		t.Errorf("got %v buckets and %v overflows, want %d and %d", buckets, overflows, s.Len(), 2*(keys-s.Len()))
	}
	runtime.KeepAlive(s)
}

func metric(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestIdleBucketsGo: keys that come once and never again don't fill a store, however many, as long as their buckets are full again.
func TestIdleBucketsGo(t *testing.T) {
	t.Parallel()
	c := newClock()
	const most = 20_000
	reg := prometheus.NewRegistry()
	s := New(Options{MaxBuckets: most, Now: c.time, Registerer: reg})
	l := limit(t, bucket.Config{Hits: 1000, Unit: bucket.Second}) // full after a millisecond
	for i := range 200_000 {
		take(t, s, store.Charge{Key: key(i), Limit: l, Hits: 1})
		c.wait(100 * time.Microsecond)
	}
	if got := s.Len(); got > 100 {
		t.Errorf("got %d buckets, want no more than a few that are not full", got)
	}
	if got := metric(t, reg, "ratelimitd_memstore_overflow_total"); got != 0 {
		t.Errorf("got %v overflows, want none", got)
	}
}

// TestFullOfWhatMatters: when a store is full of buckets that are not full, each failure mode does what it says, and when the
// buckets are full again there is room again.
func TestFullOfWhatMatters(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		policy  *bucket.Policy
		allowed int // of six new keys under two a minute
	}{
		"no policy":    {nil, 6},
		"fail open":    {&bucket.Policy{Rule: "open"}, 6},
		"local strict": {&bucket.Policy{Rule: "strict", OnFailure: bucket.LocalStrict}, 2},
		"fail closed":  {&bucket.Policy{Rule: "closed", OnFailure: bucket.FailClosed}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			const most = 1000
			s := New(Options{MaxBuckets: most, Now: c.time})
			old := limit(t, bucket.Config{Hits: 1, Unit: bucket.Hour})
			for i := range most {
				take(t, s, store.Charge{Key: key(i), Limit: old, Hits: 1})
			}
			l := limit(t, bucket.Config{Hits: 2, Unit: bucket.Minute})
			other := &bucket.Policy{Rule: "another", OnFailure: bucket.FailClosed}
			allowed := 0
			for i := range 6 {
				charges := []store.Charge{
					{Key: key(most + i), Limit: l, Policy: tt.policy, Hits: 1},
					{Key: key(most + 10 + i), Limit: l, Policy: other, Hits: 0},
				}
				if take(t, s, charges...)[0].Allowed {
					allowed++
				}
			}
			if allowed != tt.allowed {
				t.Errorf("got %d new keys allowed, want %d", allowed, tt.allowed)
			}
			if out := take(t, s,
				store.Charge{Key: key(most), Limit: l, Policy: tt.policy, Hits: 3},
				store.Charge{Key: key(most + 1), Limit: l, Policy: tt.policy, Hits: 1, Vote: store.VoteNone}); out[0].Allowed || out[0].RetryAfter != bucket.Never {
				t.Errorf("dearer than the limit: got %+v, want denied for ever", out)
			}
			for i := range most {
				if take(t, s, store.Charge{Key: key(i), Limit: old})[0].Allowed {
					t.Fatalf("old key %d was forgotten", i)
				}
			}
			c.wait(time.Hour)
			for i := range most {
				k := store.Charge{Key: key(2*most + i), Limit: l, Policy: tt.policy, Hits: 2}
				if !take(t, s, k)[0].Allowed {
					t.Fatalf("new key %d after an hour: got denied, want allowed", i)
				}
				k.Hits = 1
				if take(t, s, k)[0].Allowed {
					t.Fatalf("new key %d after an hour: got its third hit allowed, want a bucket of its own", i)
				}
			}
		})
	}
}

// TestFullBucketsAreDeleted: what becomes full, or asks only, leaves nothing behind.
func TestFullBucketsAreDeleted(t *testing.T) {
	t.Parallel()
	for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
		s := New(Options{Now: newClock().time})
		c := store.Charge{Key: key(1), Limit: limit(t, bucket.Config{Algorithm: a, Hits: 5, Unit: bucket.Hour}), Hits: 6}
		take(t, s, c) // refused
		c.Hits = 0
		take(t, s, c)
		if got := s.Len(); got != 0 {
			t.Errorf("%v: got %d buckets after a denial and a peek, want none", a, got)
		}
		c.Hits = 5
		take(t, s, c)
		if got := s.Len(); got != 1 {
			t.Errorf("%v: got %d buckets, want one", a, got)
		}
		c.Hits = -7
		take(t, s, c)
		if got := s.Len(); got != 0 {
			t.Errorf("%v: got %d buckets after all was given back, want none", a, got)
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
