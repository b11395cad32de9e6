package limiter

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// MaxShards is the most shards a topology may have: as many masters as a Redis Cluster is advised to.
const MaxShards = 1024

// Topology says which shard of the store takes a charge, so that one dead shard does not spoil the others. Safe for
// concurrent use.
type Topology interface {
	// Shard returns the number of c's shard, 0…MaxShards-1. A number means the same shard while the process lives. It
	// does not block or allocate.
	Shard(c *store.Charge) int
	// Name returns the shard's name for metrics and logs.
	Name(shard int) string
	// Probe asks the shard whether it would take charges, by one on no caller's bucket if need be, and may refresh what
	// is known of the topology. It returns by ctx's deadline.
	Probe(ctx context.Context, shard int) error
}

// OneShard is the topology of a store that lives or dies as a whole.
func OneShard(name string, probe func(context.Context) error) Topology {
	return oneShard{name, probe}
}

type oneShard struct {
	name  string
	probe func(context.Context) error
}

func (oneShard) Shard(*store.Charge) int                      { return 0 }
func (o oneShard) Name(int) string                            { return o.name }
func (o oneShard) Probe(ctx context.Context, shard int) error { return o.probe(ctx) }

// shards keeps a breaker for each shard seen. Safe for concurrent use.
type shards struct {
	topology Topology
	budget   time.Duration
	now      func() time.Duration
	bg       *background
	logger   *slog.Logger
	moves    func(shard string, open bool)

	open     atomic.Int32 // breakers that are open
	mu       sync.Mutex   // held to add a breaker
	breakers [MaxShards]atomic.Pointer[breaker]
}

// isOpen reports whether the shard that takes c must not be called.
func (s *shards) isOpen(c *store.Charge) bool {
	b := s.breakers[s.topology.Shard(c)].Load()
	return b != nil && b.open.Load()
}

// report tells the breaker of each shard that was called whether it paid its charges.
func (s *shards) report(charges []store.Charge, out []store.Decision, now time.Duration) {
	var failed, told shardSet
	for i := range charges {
		if out[i].Origin == store.Unavailable {
			failed.add(s.topology.Shard(&charges[i]))
		}
	}
	for i := range charges {
		if n := s.topology.Shard(&charges[i]); told.add(n) {
			s.breaker(n).record(now, !failed.has(n))
		}
	}
}

// breaker returns the breaker of a shard, made when it is first called.
func (s *shards) breaker(n int) *breaker {
	if b := s.breakers[n].Load(); b != nil {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.breakers[n].Load(); b != nil {
		return b
	}
	probe := func(ctx context.Context) error { return s.topology.Probe(ctx, n) }
	moved := func(open bool) { s.moved(n, open) }
	b := newBreaker(s.bg, s.budget, s.now, probe, moved)
	s.breakers[n].Store(b)
	return b
}

func (s *shards) moved(n int, open bool) {
	name := s.topology.Name(n)
	s.moves(name, open)
	if open {
		s.open.Add(1)
		s.logger.Warn("store shard is down, its limits are decided by their failure mode", "shard", name)
	} else {
		s.open.Add(-1)
		s.logger.Info("store shard is back", "shard", name)
	}
}

// nudge has every open breaker probe at once.
func (s *shards) nudge() {
	if s.open.Load() == 0 {
		return
	}
	s.each(func(_ int, b *breaker) { b.nudge() })
}

// each calls f for every shard seen so far.
func (s *shards) each(f func(n int, b *breaker)) {
	for n := range s.breakers {
		if b := s.breakers[n].Load(); b != nil {
			f(n, b)
		}
	}
}

// A shardSet is a set of shard numbers.
type shardSet [MaxShards / 64]uint64

// add reports whether n was new.
func (s *shardSet) add(n int) bool {
	was := s.has(n)
	s[n/64] |= 1 << (n % 64)
	return !was
}

func (s *shardSet) has(n int) bool { return s[n/64]&(1<<(n%64)) != 0 }

// down returns the names of the shards whose breakers are open.
func (s *shards) down() []string {
	var names []string
	s.each(func(n int, b *breaker) {
		if b.open.Load() {
			names = append(names, s.topology.Name(n))
		}
	})
	return names
}
