package limiter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Options configures New. Only Store must be given.
type Options struct {
	Store store.Store // pays while it answers

	// Local keeps the buckets of this process: the fallback's, and those of limits with node scope. Nil means no
	// fallback: what the store cannot take is Unavailable, allowed as its failure mode says.
	Local store.Store

	Topology Topology // the store's shards; nil means no breaker: every request is tried
	Nodes    *Nodes   // nil means one node

	Timeout     time.Duration // how long a charge may wait for the store; 0 means 5 ms
	OwnTimer    bool          // the store returns within Timeout whatever happens, so it is called on the caller's goroutine
	GivesBack   bool          // the store may take charges and give them back by itself, as in a Redis Cluster: no denial is remembered for more than a second
	MaxInFlight int           // most calls of the store at one time; a request past it is decided as if the store were away; 0 means 4096
	Remember    int           // most buckets whose last answer is remembered, 120 bytes each; 0 means 65,536, < 0 none: nothing is denied here, fallback buckets start full

	Now        func() time.Time      // nil means the monotonic clock; for tests of what is remembered
	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: slog.Default()
}

// Limiter is a store.Store that decides by its Options' store while that answers, and without it when not. Safe for
// concurrent use; made by New.
type Limiter struct {
	store    store.Store
	local    store.Store
	nodes    *Nodes
	timeout  time.Duration
	ownTimer bool
	most     int64
	now      func() time.Duration

	inFlight atomic.Int64
	calls    sync.Pool // of *guardedCall
	shards   *shards   // nil: no breakers
	recent   *recent   // nil: nothing is remembered
	shares   shares
	warming  [64]paddedMutex
	settling atomic.Int64
	metrics  *metrics
	bg       *background
}

// New returns a limiter. It starts no goroutine; Close ends those it may start later.
func New(o Options) (*Limiter, error) {
	if o.Store == nil {
		return nil, errors.New("limiter: no store")
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("limiter: timeout %v: must be positive", o.Timeout)
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Millisecond
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 4096
	}
	if o.Remember == 0 {
		o.Remember = 1 << 16
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Nodes == nil {
		o.Nodes = NewNodes(1, nil, o.Logger)
	}
	start := time.Now()
	now := func() time.Duration { return time.Since(start) + 1 } // 0 is never
	if o.Now != nil {
		start = o.Now()
		now = func() time.Duration { return o.Now().Sub(start) + 1 }
	}
	l := &Limiter{
		store: o.Store, local: o.Local, nodes: o.Nodes,
		timeout: o.Timeout, ownTimer: o.OwnTimer, most: int64(o.MaxInFlight),
		now:   now,
		calls: sync.Pool{New: newGuardedCall},
		bg:    newBackground(),
	}
	if o.Remember > 0 {
		l.recent = newRecent(o.Remember)
		l.recent.givesBack = o.GivesBack
	}
	l.metrics = newMetrics(l)
	if o.Topology != nil {
		l.shards = &shards{
			topology: o.Topology, budget: o.Timeout, now: l.now, bg: l.bg, logger: o.Logger, moves: l.moved,
		}
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(l.metrics)
	}
	return l, nil
}

// Take implements store.Store. It returns within Options.Timeout, whatever the store does, and never blocks on anything
// else. Unless Options.Local is nil, a decision is Unavailable only for a charge of a limit that fails closed, and for
// hits given back to a store that is away.
func (l *Limiter) Take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	sent := l.now()
	if l.recent != nil && l.recent.deny(charges, out, sent) {
		l.metrics.denied.Inc()
		return nil
	}
	paid, unsent, late := l.pay(ctx, charges, out, sent)
	if paid {
		return nil
	}
	return l.fallBack(ctx, charges, out, unsent, late)
}

// moved notes a transition of a shard's breaker.
func (l *Limiter) moved(shard string, open bool) {
	l.metrics.moved(shard, open)
	if !open && l.recent != nil {
		l.recent.due.Store(int64(l.now() + handOverFor))
	}
}

// Forget drops what is remembered of a bucket, here and of answers that are under way: it was reset, or granted hits.
func (l *Limiter) Forget(key store.Key) {
	if l.recent != nil {
		l.recent.forget(&key, noLimit, l.now())
	}
}

// ForgetAll drops all that is remembered, as when it may have missed a call of Forget.
func (l *Limiter) ForgetAll() {
	if l.recent != nil {
		l.recent.forgetAll(l.now())
	}
}

// Nudge has every open breaker probe at once: something happened, such as a new connection or a new master, that may
// have brought its shard back. It does not block.
func (l *Limiter) Nudge() {
	if l.shards != nil {
		l.shards.nudge()
	}
}

// Down returns the names of the shards whose breakers are open, in no order.
func (l *Limiter) Down() []string {
	if l.shards == nil {
		return nil
	}
	return l.shards.down()
}

// Close ends the probes and waits for them and for hits that are being given back. A call that the store has not
// returned from by its time is the store's to end. Take works after Close, but every breaker stays as it is.
func (l *Limiter) Close() error {
	l.bg.close()
	return nil
}
