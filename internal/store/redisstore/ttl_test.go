package redisstore_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// everyKind is limits of 10 hits a unit: each algorithm, debt, a queue, and a calendar.
func everyKind(u bucket.Unit) map[string]bucket.Config {
	kinds := make(map[string]bucket.Config)
	for _, c := range algorithms(10, u) {
		kinds[c.Algorithm.String()] = c
		c.Debt = 5
		kinds[c.Algorithm.String()+" with debt"] = c
	}
	kinds["queue"] = bucket.Config{Algorithm: bucket.LeakyBucket, Hits: 10, Unit: u, MaxDelay: time.Second}
	if u >= bucket.Day {
		kinds["calendar"] = bucket.Config{Algorithm: bucket.FixedWindow, Hits: 10, Unit: u, Calendar: time.UTC}
	}
	return kinds
}

// TestC65EveryKeyExpires takes from every kind of bucket by the clock of Redis, and looks at what is left of its key's life.
func TestC65EveryKeyExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	for _, unit := range []bucket.Unit{bucket.Second, bucket.Minute, bucket.Day, bucket.Year} {
		for name, config := range everyKind(unit) {
			for _, hits := range []int64{1, 2, 7} {
				for _, book := range []store.Book{store.BookIfAdmitted, store.BookAlways, store.BookWhenRefuses} {
					if err := server.Client().FlushDB(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
					c := charge(t, name, config)
					c.Hits, c.Book, c.MaxDelay = hits, book, time.Second
					start := time.Now()
					longest := 2*c.Limit.Period() + time.Millisecond // of two windows; full after one period and its debt
					ttl := func() time.Duration {
						ttl, err := server.Client().PTTL(t.Context(), c.Key.String()).Result()
						if err != nil {
							t.Fatal(err)
						}
						return ttl
					}
					d := take(t, s, c)[0]
					if got, least := ttl(), d.ResetAfter-time.Since(start)-time.Millisecond; got < least || got > longest {
						if got == -2 && least <= 0 {
							continue // the window ended meanwhile
						}
						t.Errorf("%s, %d hits a %s: got TTL %v, want %v to %v", name, hits, unit, got, least, longest)
					}
					for range 10 {
						take(t, s, c)
					}
					if got := ttl(); got > longest || got == -1 {
						t.Errorf("%s, 11 × %d hits a %s: got TTL %v, want at most %v", name, hits, unit, got, longest)
					}
				}
			}
		}
	}
}

// TestC65NothingIsLeft waits until all buckets of a second are forgotten.
func TestC65NothingIsLeft(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	var charges []store.Charge
	for name, config := range everyKind(bucket.Second) {
		charges = append(charges, charge(t, name, config))
	}
	take(t, s, charges...)
	redistest.Await(t, 30*time.Second, "an empty database", func() bool {
		n, err := server.Client().DBSize(t.Context()).Result()
		return err == nil && n == 0
	})
}

// TestFullBucketsAreDeleted gives everything back and looks for keys.
func TestFullBucketsAreDeleted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	for name, config := range everyKind(bucket.Year) {
		c := charge(t, name, config)
		c.Hits = 3
		d := take(t, s, c)[0]
		c.Hits, c.Tick = -4, d.Tick
		take(t, s, c)
		if n, err := server.Client().DBSize(t.Context()).Result(); err != nil || n != 0 {
			t.Errorf("%s, all given back: got %d keys (%v), want 0", name, n, err)
		}
	}
}

// TestNothingIsWritten asks what must leave no key behind.
func TestNothingIsWritten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	for name, config := range everyKind(bucket.Year) {
		c := charge(t, name, config)
		peek, dear, refund := c, c, c
		peek.Hits, dear.Hits, refund.Hits = 0, bucket.MaxCost, -5
		config.Hits, config.Burst = 0, 0
		zero := charge(t, name, config)
		for _, c := range []store.Charge{peek, dear, refund, zero} { // C04, C02, C14, C60
			take(t, s, c)
			if n, err := server.Client().DBSize(t.Context()).Result(); err != nil || n != 0 {
				t.Errorf("%s, %d hits on %d: got %d keys (%v), want 0", name, c.Hits, c.Limit.Config().Hits, n, err)
			}
		}
	}
}
