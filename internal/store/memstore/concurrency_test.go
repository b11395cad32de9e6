package memstore

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

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
