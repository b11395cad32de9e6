package bucket_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// TestTTL: a state is kept for as long as it matters and no longer than twice the period or until it is full, and asking on does not
// push that further (C65).
func TestTTL(t *testing.T) {
	t.Parallel()
	for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
		for _, hits := range []int64{1, 2, 7} {
			l := newLimit(t, bucket.Config{Algorithm: a, Hits: 10, Unit: bucket.Minute})
			minute := l.Period().Microseconds()
			now := year2030 + 20*time.Second.Microseconds()
			want := map[bucket.Family]int64{
				bucket.Credit: hits * minute / 10, // until full
				bucket.Window: minute * 2 / 3,     // the rest of the window
				bucket.Log:    minute,
			}[l.Family()]
			if a == bucket.SlidingWindow {
				want += minute
			}
			var s bucket.State
			if o := l.Take(&s, now, bucket.Ask{Hits: hits, Mode: bucket.Fit}); !o.Changed || o.TTL != want {
				t.Errorf("%v, %d hits: got a TTL of %d µs, want %d", a, hits, o.TTL, want)
			}
			ttl := int64(0)
			for range 100 {
				if o := l.Take(&s, now, bucket.Ask{Hits: hits, Mode: bucket.Fit}); o.Changed {
					ttl = o.TTL
				}
			}
			if ttl > 2*minute {
				t.Errorf("%v, %d hits a hundred times: got a TTL of %d µs, want at most two minutes", a, hits, ttl)
			}
			// What the store forgets then is what the arithmetic would call full.
			if o := l.Take(&s, now+max(ttl, want), bucket.Ask{Hits: 10, Mode: bucket.Look}); !o.Allowed {
				t.Errorf("%v, %d hits: still counts after its TTL: %+v", a, hits, o)
			}
		}
	}
}
