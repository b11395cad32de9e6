package memstore

import (
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

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
	for i := range plays(200_000) {
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
