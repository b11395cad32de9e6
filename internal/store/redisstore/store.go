package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

const (
	defaultTimeout = 5 * time.Millisecond
	// dialTimeout bounds a new connection, TLS included. Dialling goes on while calls time out: under their own
	// deadline a connection that needs longer would never come to be.
	dialTimeout = 2 * time.Second
	// lateReply is how much longer than its callers a connection waits for a reply. Closing it at their deadline would
	// answer every hiccup with a reconnection, and a network whose round trip is more than half the deadline would
	// never get past the greeting.
	lateReply = 50 * time.Millisecond
)

// Options configures New. Only URL must be given.
type Options struct {
	URL        string                // redis://[user:password@]host:port[/db], rediss:// for TLS, unix:///path[?db=n]
	Timeout    time.Duration         // longest wait of a Take; 0 means 5 ms
	Now        func() time.Time      // the clock of every decision, for tests; nil: the clock of Redis
	Registerer prometheus.Registerer // nil: no metrics
	Tracer     trace.Tracer          // nil: no spans
	Logger     *slog.Logger          // nil: slog.Default()
}

// Store takes charges in one Redis server. Made by New only; safe for concurrent use.
type Store struct {
	client  *redis.Client
	timeout time.Duration
	now     func() time.Time
	tracer  trace.Tracer
	metrics *metrics
	outage  outage
	tuning  tuning

	calls   chan *call
	idle    sync.Pool // of *call
	closing chan struct{}
	close   sync.Once
	senders sync.WaitGroup
}

var _ store.Store = (*Store)(nil)

// New returns a store on the Redis server at o.URL. It does not wait for Redis: a server that is away makes Take
// unavailable until it comes. The error is a bad URL or a metric registered before; it never tells the URL, whose
// password may be anywhere in what cannot be parsed. Close ends what New starts.
func New(o Options) (*Store, error) { return open(o, tuned) }

// quiet silences go-redis's own log, which is one a process: all it has to say comes back as errors.
var quiet = sync.OnceFunc(logging.Disable)

func open(o Options, tuning tuning) (*Store, error) {
	quiet()
	opt, err := redis.ParseURL(o.URL)
	if err != nil {
		return nil, errors.New("redis url: want redis://[user:password@]host:port[/db], rediss://… or unix:///path[?db=n]")
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("redis timeout %v: must not be negative", o.Timeout)
	}
	s := &Store{
		timeout: o.Timeout,
		now:     o.Now,
		tracer:  o.Tracer,
		tuning:  tuning,
		calls:   make(chan *call, tuning.queue),
		closing: make(chan struct{}),
	}
	if s.timeout == 0 {
		s.timeout = defaultTimeout
	}
	s.outage.logger = o.Logger
	if s.outage.logger == nil {
		s.outage.logger = slog.Default()
	}
	if s.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, err
	}
	s.idle.New = func() any { return newCall() }

	opt.Protocol = 2      // no greeting beyond what the server's ACL must grant anyway
	opt.MaxRetries = -1   // a charge that may have been applied is never sent again
	opt.DialerRetries = 1 // the next batch dials again
	opt.DialTimeout = dialTimeout
	opt.ReadTimeout = s.ioTimeout()
	opt.WriteTimeout = s.ioTimeout()
	opt.PoolTimeout = s.ioTimeout()
	opt.PoolSize = tuning.senders + 2 // Ping and Secret never wait for a sender's connection
	opt.ContextTimeoutEnabled = true
	opt.DisableIdentity = true
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	s.client = redis.NewClient(opt)

	for range tuning.senders {
		s.senders.Add(1)
		go s.send()
	}
	return s, nil
}

// ioTimeout is how long a call of Redis may take, once every caller has left.
func (s *Store) ioTimeout() time.Duration { return 2*s.timeout + lateReply }

// Take implements store.Store. It returns after Options.Timeout at the latest, or when ctx ends; a request that had not
// been sent by then is not. A request with a provisional key is unavailable as a whole and never sent.
func (s *Store) Take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	if len(charges) == 0 {
		return nil
	}
	o := s.observe(ctx, len(charges))
	err := s.take(ctx, charges, out)
	if err != nil {
		for i := range charges {
			out[i] = store.Unpaid(&charges[i])
		}
		err = fmt.Errorf("take charges in redis: %w", err)
	}
	o.end(err)
	return err
}

func (s *Store) take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	if err := ctx.Err(); err != nil {
		return unsent(err)
	}
	c := s.idle.Get().(*call)
	if err := c.encode(charges, s.now); err != nil {
		s.idle.Put(c)
		return unsent(err)
	}
	c.timer.Reset(s.timeout)
	err := s.exchange(ctx, c)
	if c.abandoned() {
		return err // a sender may still be writing it: it is the garbage collector's
	}
	c.timer.Stop()
	if err == nil {
		c.decode(out[:len(charges)])
	}
	c.reset()
	s.idle.Put(c)
	return err
}

// exchange gives c to a sender and waits for its answer, for the timer, or for ctx. The timer stands outside of the
// call of Redis: a deadline handed down is honoured at the next socket operation, which is no bound on latency.
func (s *Store) exchange(ctx context.Context, c *call) error {
	select {
	case s.calls <- c:
	case <-c.timer.C:
		return c.abandon(errTimeout)
	case <-ctx.Done():
		return c.abandon(ctx.Err())
	case <-s.closing:
		return c.abandon(errClosed)
	}
	closing := s.closing
	for {
		select {
		case err := <-c.done:
			return err
		case <-c.timer.C:
			return c.abandon(errTimeout)
		case <-ctx.Done():
			return c.abandon(ctx.Err())
		case <-closing:
			if c.withdraw() {
				return unsent(errClosed)
			}
			closing = nil // it is under way, and its sender stays to bring the answer
		}
	}
}

// Close ends the store: what waits is answered as unavailable, what is in flight is waited for, connections are closed.
// A second call does nothing.
func (s *Store) Close() error {
	var err error
	s.close.Do(func() {
		close(s.closing)
		s.senders.Wait()
		err = s.client.Close()
	})
	return err
}
