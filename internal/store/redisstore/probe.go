package redisstore

import (
	"context"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// probeKey has the form of no bucket's key.
const probeKey = "rl1:probe"

// probeLimit is so generous that a hit is always booked, and forgotten within a millisecond.
var probeLimit = func() *bucket.Limit {
	l, err := bucket.New(bucket.Config{Hits: bucket.MaxHits, Unit: bucket.Second})
	if err != nil {
		panic(err) // the configuration above is valid
	}
	return l
}()

// Ping returns nil once a charge has been taken, on a key of its own that expires within a millisecond: it fails whenever
// charges would, so on a server that answers but does not write too. It waits no longer than ctx says, twice the timeout
// and 50 ms, and its error is one of Take's.
func (s *Store) Ping(ctx context.Context) error {
	c := newCall()
	charge := []store.Charge{{Limit: probeLimit, Hits: 1}}
	if err := c.encode(charge, nil); err != nil {
		return fmt.Errorf("ping redis: %w", unsent(err))
	}
	if _, err := s.eval(ctx, 1, []any{probeKey, c.request}); err != nil {
		return fmt.Errorf("ping redis: %w", translate(err))
	}
	return nil
}
