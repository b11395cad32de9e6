package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

const (
	defaultTimeout = 5 * time.Millisecond
	// lateReply is how much longer than its callers a connection waits for a reply. Closing it at their deadline would
	// answer every hiccup with a reconnection, and a network whose round trip is more than half the deadline would
	// never get past the greeting.
	lateReply = 50 * time.Millisecond
)

// Options configures New. Only URL or Redis must be given.
type Options struct {
	URL        string                // as redisconn.Options.URL has it; for tests and commands
	Redis      *redisconn.Redis      // beats URL; its owner closes it, after the store
	Timeout    time.Duration         // longest wait of a Take; 0 means 5 ms
	OnChange   func()                // called when a shard that was down may take charges again, and when a master has moved; must not block; nil: nobody
	Now        func() time.Time      // the clock of every decision, for tests; nil: the clock of Redis
	Registerer prometheus.Registerer // nil: no metrics
	Tracer     trace.Tracer          // nil: no spans
	Logger     *slog.Logger          // nil: slog.Default()
}

// Store takes charges in Redis: in one server, in the master that Sentinels name, or in the masters of a Cluster. Made by
// New only; safe for concurrent use. A shard is one master with its replicas, whichever of them is the master now; Shard,
// Name and Probe tell of shards.
type Store struct {
	redis   *redisconn.Redis
	own     bool     // redis was made here
	name    [16]byte // among the nodes, at random
	timeout time.Duration
	now     func() time.Time
	tracer  trace.Tracer
	metrics *metrics
	outage  outage
	logger  *slog.Logger
	tuning  tuning

	nodes    nodes
	topology topology
	lanes    lanes
	cluster  *cluster // nil: one lane takes every key
	notify   func()
	stirred  chan struct{} // capacity 1: look at the topology now

	idle    sync.Pool // of *call
	closing chan struct{}
	close   sync.Once
	workers sync.WaitGroup // senders and the watch
}

var _ store.Store = (*Store)(nil)

// New returns a store on Redis. It does not wait for Redis: a server that is away makes Take unavailable until it comes.
// The error is a bad URL or a metric registered before; it never tells the URL, whose password may be anywhere in what
// cannot be parsed. Close ends what New starts.
func New(o Options) (*Store, error) { return open(o, tuned) }

func open(o Options, tuning tuning) (*Store, error) {
	if tuning.charges > mostBatched {
		panic("redisstore: batches of more charges than an errand can number")
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("redis timeout %v: must not be negative", o.Timeout)
	}
	s := &Store{
		redis: o.Redis, timeout: o.Timeout, now: o.Now, tracer: o.Tracer, logger: o.Logger, tuning: tuning, notify: o.OnChange,
		stirred: make(chan struct{}, 1),
		closing: make(chan struct{}),
	}
	if s.timeout == 0 {
		s.timeout = defaultTimeout
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	s.outage.logger = s.logger
	if s.notify == nil {
		s.notify = func() {}
	}
	_, _ = rand.Read(s.name[:]) // never errs
	var err error
	if s.redis == nil {
		if s.redis, err = redisconn.New(redisconn.Options{URL: o.URL}); err != nil {
			return nil, err
		}
		s.own = true
	}
	if s.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, errors.Join(err, s.closeConn())
	}
	s.topology.known = make(chan struct{})
	s.idle.New = func() any { return newCall() }
	s.nodes.open = s.dial
	switch s.redis.Kind() {
	case redisconn.Cluster:
		s.cluster = newCluster(s)
	case redisconn.Sentinel:
		s.addLane("redis")
	default:
		s.addLane("redis").node.Store(s.nodes.get(s.redis.Addrs()[0]))
		s.topology.once.Do(func() { close(s.topology.known) })
	}
	s.workers.Go(s.watch)
	return s, nil
}

// ioTimeout is how long a call of Redis may take, once every caller has left.
func (s *Store) ioTimeout() time.Duration { return 2*s.timeout + lateReply }

// Take implements store.Store. It returns after Options.Timeout at the latest, or when ctx ends; a request that had not
// been sent by then is not. A request with a provisional key is unavailable as a whole and never sent. In a Cluster a
// request over several slots is decided as "Across slots" of docs/redis.md has it.
func (s *Store) Take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	if len(charges) == 0 {
		return nil
	}
	o := s.observe(ctx, len(charges))
	err := s.take(ctx, charges, out)
	if err != nil {
		err = fmt.Errorf("take charges in redis: %w", err)
	}
	o.end(err)
	return err
}

func (s *Store) take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	if s.cluster != nil {
		return s.takeInCluster(ctx, charges, out)
	}
	err := s.takeAt(ctx, s.lanes.first(), 0, charges, out)
	if err != nil {
		leaveUnpaid(charges, out)
	}
	return err
}

func leaveUnpaid(charges []store.Charge, out []store.Decision) {
	for i := range charges {
		out[i] = store.Unpaid(&charges[i])
	}
}

// takeAt takes charges whose keys share a slot at the lane of that slot. On an error out is as it was.
func (s *Store) takeAt(ctx context.Context, l *lane, slot uint16, charges []store.Charge, out []store.Decision) error {
	if err := ctx.Err(); err != nil {
		return unsent(err)
	}
	c := s.idle.Get().(*call)
	if err := c.encode(charges, whole, s.now); err != nil {
		s.idle.Put(c)
		return unsent(err)
	}
	c.slot = slot
	err := l.calls.put(c)
	if err == nil {
		err = c.await(ctx)
	}
	if c.abandoned() {
		if errors.Is(err, errTimeout) {
			s.outage.report(l.name, err)
		}
		return err // a sender may still be writing it: it is the garbage collector's
	}
	s.collect(c, err, out[:len(charges)])
	return err
}

// collect reads the answer of a call that its caller has not left, and puts it back.
func (s *Store) collect(c *call, err error, out []store.Decision) {
	if err == nil {
		c.decode(out)
	}
	s.idle.Put(c)
}

// Close ends the store: what waits is answered as unavailable, what is in flight is waited for, connections are closed.
// A second call does nothing.
func (s *Store) Close() error {
	var err error
	s.close.Do(func() {
		close(s.closing)
		for _, l := range s.lanes.all() {
			l.calls.close()
		}
		s.workers.Wait()
		err = errors.Join(s.nodes.close(), s.closeConn())
	})
	return err
}

// Format writes a name in place of connections and their passwords, whatever the verb.
func (*Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "redisstore.Store") }

func (s *Store) closeConn() error {
	if !s.own {
		return nil
	}
	return s.redis.Close()
}

// lanes is a list that only grows. The zero value is empty; safe for concurrent use.
type lanes struct{ list atomic.Pointer[[]*lane] }

// all returns the lanes by number.
func (l *lanes) all() []*lane {
	if list := l.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (l *lanes) first() *lane { return l.all()[0] }
