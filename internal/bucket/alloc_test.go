package bucket_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// everyLimit is one limit an algorithm, and the odd ones.
func everyLimit(t testing.TB) map[string]*bucket.Limit {
	t.Helper()
	limits := map[string]*bucket.Limit{
		"queue": newLimit(t, bucket.Config{
			Algorithm: bucket.LeakyBucket, Hits: 100, Unit: bucket.Second, MaxDelay: time.Second,
		}),
		"calendar": newLimit(t, bucket.Config{
			Algorithm: bucket.FixedWindow, Hits: 100, Unit: bucket.Month, Calendar: zone("Europe/Berlin"),
		}),
	}
	for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
		limits[a.String()] = newLimit(t, bucket.Config{Algorithm: a, Hits: 100, Unit: bucket.Second})
	}
	return limits
}

func TestTakeDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates: nothing to see")
		return
	}
	for name, l := range everyLimit(t) {
		s := bucket.State{Log: make([]bucket.Entry, 0, 256)}
		now := int64(year2030)
		if n := testing.AllocsPerRun(1000, func() {
			now += 9000 // a little faster than the limit
			l.Take(&s, now, bucket.Ask{Hits: 1, Mode: bucket.Fit})
		}); n != 0 {
			t.Errorf("%s: got %v allocations a take, want 0", name, n)
		}
	}
}

func BenchmarkTake(b *testing.B) {
	for name, l := range everyLimit(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var s bucket.State
			now := int64(year2030)
			for b.Loop() {
				now += 9000
				l.Take(&s, now, bucket.Ask{Hits: 1, Mode: bucket.Fit})
			}
		})
	}
}
