// Package storetest is the contract of store.Store as tests. Every store passes Run unchanged; what Run says of waits
// and remainders is exact, on a clock that the tests move.
//
// It hides the scenarios. It knows no store: it neither looks into one nor tests what only one of them can do.
package storetest

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Open returns a store that decides by the clock it is given. Stores of one test run at the same time and may share
// their buckets. What Open starts, it ends by t.Cleanup.
type Open func(t *testing.T, now func() time.Time) store.Store

// Run tests the store that open returns, each test its own.
func Run(t *testing.T, open Open) {
	t.Run("EveryAlgorithm", func(t *testing.T) {
		t.Parallel()
		for name, test := range everyAlgorithm {
			for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
				t.Run(name+"/"+a.String(), func(t *testing.T) {
					t.Parallel()
					test(newWorld(t, open), bucket.Config{Algorithm: a, Hits: 10, Unit: bucket.Minute})
				})
			}
		}
	})
	for group, tests := range map[string]map[string]func(*world){
		"Algorithms": algorithms,
		"Requests":   requests,
		"Callers":    callers,
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(newWorld(t, open))
				})
			}
		})
	}
}

// epoch is when every world begins: the start of a minute, an hour and a day, and a Tuesday.
var epoch = time.Date(2028, time.February, 29, 0, 0, 0, 0, time.UTC)

// keys numbers the keys of all worlds, as stores may share their buckets.
var keys atomic.Uint64

// world is a store under a clock, and what a test needs to ask it.
type world struct {
	*testing.T
	store store.Store

	mu  sync.Mutex
	now time.Time
}

func newWorld(t *testing.T, open func(*testing.T, func() time.Time) store.Store) *world {
	w := &world{T: t, now: epoch}
	w.store = open(t, w.time)
	return w
}

func (w *world) time() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// wait moves the clock.
func (w *world) wait(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// key returns a key that no test has used.
func (w *world) key() store.Key {
	var k store.Key
	copy(k[:], "storetest")
	binary.BigEndian.PutUint32(k[len(k)-4:], uint32(keys.Add(1)))
	return k
}

// limit returns the limit of c, which must be valid.
func (w *world) limit(c bucket.Config) *bucket.Limit {
	w.Helper()
	l, err := bucket.New(c)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// bucket returns a charge of one hit on a fresh bucket under c: what tests start from.
func (w *world) bucket(c bucket.Config) store.Charge {
	w.Helper()
	return store.Charge{Key: w.key(), Limit: w.limit(c), Policy: &bucket.Policy{Refunds: true}, Hits: 1}
}

// with returns c with its hits replaced.
func with(c store.Charge, hits int64) store.Charge {
	c.Hits = hits
	return c
}

// take asks the store, which must answer.
func (w *world) take(charges ...store.Charge) []store.Decision {
	w.Helper()
	out := make([]store.Decision, len(charges))
	if err := w.store.Take(context.Background(), charges, out); err != nil {
		w.Fatalf("take: %v", err)
	}
	return out
}

// expect takes the charges as one request and compares the decisions. A Tick is compared only with its rule: never 0
// where hits were booked.
func (w *world) expect(what string, charges []store.Charge, want ...store.Decision) []store.Decision {
	w.Helper()
	got := w.take(charges...)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(store.Decision{}, "Tick")); diff != "" {
		w.Errorf("%s: -want +got:\n%s", what, diff)
	}
	for i, d := range got {
		if d.Granted > 0 && d.Tick == 0 {
			w.Errorf("%s: charge %d: got tick 0 for %d hits booked, want one that gives them back", what, i, d.Granted)
		}
	}
	return got
}

// expectOne is expect for a request of one charge.
func (w *world) expectOne(what string, c store.Charge, want store.Decision) store.Decision {
	w.Helper()
	return w.expect(what, []store.Charge{c}, want)[0]
}

// admits takes c n times and returns how many were allowed.
func (w *world) admits(c store.Charge, n int) int {
	w.Helper()
	allowed := 0
	for range n {
		if w.take(c)[0].Allowed {
			allowed++
		}
	}
	return allowed
}

// peek looks at a bucket without spending.
func (w *world) peek(c store.Charge) store.Decision {
	w.Helper()
	return w.take(store.Charge{Key: c.Key, Limit: c.Limit, Policy: c.Policy})[0]
}

// remains checks what is left in a bucket.
func (w *world) remains(what string, c store.Charge, want int64) {
	w.Helper()
	if got := w.peek(c).Remaining; got != want {
		w.Errorf("%s: got %d hits remaining, want %d", what, got, want)
	}
}

// honest checks the wait of a refused charge to the microsecond: just before it the charge is refused, then it is
// allowed. It spends the charge.
func (w *world) honest(what string, c store.Charge, refused store.Decision) {
	w.Helper()
	if refused.Allowed || refused.RetryAfter <= 0 {
		w.Fatalf("%s: got %+v, want a refusal with a wait", what, refused)
	}
	w.wait(refused.RetryAfter - time.Microsecond)
	if d := w.take(c)[0]; d.Allowed {
		w.Errorf("%s: allowed 1 µs before the wait of %v was over", what, refused.RetryAfter)
	}
	w.wait(time.Microsecond)
	if d := w.take(c)[0]; !d.Allowed {
		w.Errorf("%s: refused after the wait of %v: %+v", what, refused.RetryAfter, d)
	}
}
