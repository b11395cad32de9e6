package redisstore

import (
	"context"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// probeKey has the form of no bucket's key.
const probeKey = "rl1:probe"

// probeLimit is so generous that a hit is always booked, and forgotten within a millisecond by the clock of Redis.
var probeLimit = func() *bucket.Limit {
	l, err := bucket.New(bucket.Config{Hits: bucket.MaxHits, Unit: bucket.Second})
	if err != nil {
		panic(err) // the configuration above is valid
	}
	return l
}()

// Ping returns nil once Probe has of every shard.
func (s *Store) Ping(ctx context.Context) error {
	for _, l := range s.lanes.all() {
		if err := s.Probe(ctx, l.number); err != nil {
			return fmt.Errorf("ping redis: %w", err)
		}
	}
	return nil
}

// Probe returns nil once a charge has been taken at a shard, on a key of its own that expires within a millisecond: it
// fails whenever charges would, so on a server that answers but does not write too. Shard 0 of a Cluster takes none, and
// is well while every slot is served; a shard without slots is well. It waits no longer than ctx says, twice the timeout
// and 50 ms, and its error is one of Take's.
func (s *Store) Probe(ctx context.Context, shard int) error {
	lanes := s.lanes.all()
	if shard >= len(lanes) {
		return unsent(fmt.Errorf("shard %d of %d", shard, len(lanes)))
	}
	l := lanes[shard]
	key := l.probe.Load()
	if key == nil {
		if s.cluster != nil && shard == 0 && l.serves(s.cluster.slots.Load()) {
			s.stir()
			return unsent(errNowhere)
		}
		return nil
	}
	c := newCall()
	charge := []store.Charge{{Limit: probeLimit, Hits: 1}}
	if err := c.encode(charge, whole, nil); err != nil {
		return unsent(err)
	}
	reply, err := s.run(ctx, l, scriptHash, script, *key, "\x01", "", c.request)
	if err != nil {
		return fmt.Errorf("shard %s: %w", l.name, translate(err))
	}
	if text, ok := reply.(string); !ok || len(text) != answerLen {
		return unavailable(fmt.Errorf("reply of the script: want %d bytes", answerLen))
	}
	return nil
}
