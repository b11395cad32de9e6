package limiter

import (
	"testing"
	"time"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// What matters for the shortest time is forgotten first, and what was denied last, as long as it is denied.
func TestForgetsWhatMattersLeast(t *testing.T) {
	t.Parallel()
	r := newRecent(recentWays) // one set
	say := func(at time.Duration, d store.Decision) store.Key {
		c := charge(t, perHour(60), keeps)
		r.note([]store.Charge{c}, []store.Decision{d}, at-1, at)
		return c.Key
	}
	granted := func(reset time.Duration) store.Decision {
		return store.Decision{Allowed: true, Granted: 1, Remaining: 1, ResetAfter: reset}
	}
	denied := func(retry time.Duration) store.Decision {
		return store.Decision{RetryAfter: retry, ResetAfter: time.Hour}
	}
	owes := charge(t, perHour(60), keeps)
	r.owe(&owes, 5, 1)
	keys := []store.Key{ // by what is forgotten first, from the second minute on
		say(1, granted(time.Minute)),
		say(1, granted(3*time.Minute)),
		say(1, granted(2*time.Hour)),
		say(2*time.Minute, denied(10*time.Minute)),
		say(1, denied(20*time.Minute)),
		owes.Key,
	}
	gone := say(1, denied(time.Minute)) // full in an hour, and denied no more
	keys = append(keys[:2:2], append([]store.Key{gone}, keys[2:]...)...)
	say(1, granted(0))
	for i, key := range keys {
		if _, known := r.get(&key); !known {
			t.Fatalf("key %d was forgotten before its turn", i)
		}
		now := 2 * time.Minute
		say(now, denied(time.Hour)) // takes a place for good; the first, that of the bucket that is full
		if i > 0 {
			if _, known := r.get(&keys[i-1]); known {
				t.Errorf("key %d is there, want it forgotten", i-1)
			}
		}
	}
}

func TestHeadsAreCacheLines(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(head{}); size != 64 {
		t.Errorf("got a head of %d bytes, want a cache line of 64", size)
	}
}
