package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// DefaultFallbackBuckets is how many buckets are kept in memory for when Redis is away: 8 MB of them.
const DefaultFallbackBuckets = 100_000

// newConn says how Redis is reached, if there is one.
func (a *App) newConn() error {
	if a.o.RedisURL == "" {
		return nil
	}
	reach := a.o.Redis
	reach.URL = string(a.o.RedisURL)
	conn, err := redisconn.New(reach)
	if err != nil {
		return &OptionsError{fmt.Errorf("--redis-url: %w", err)}
	}
	a.undo.add("close connections to Sentinels", func(context.Context) error { return conn.Close() })
	a.conn = conn
	return nil
}

// newStore makes the store that the options ask for, and the keyer that goes with it.
func (a *App) newStore(tracer trace.Tracer) (store.Store, error) {
	secret := string(a.o.KeySecret)
	if a.o.RedisURL == "" && secret == "" {
		secret = rand.Text() // nobody else looks at these buckets, and they end with the process
	}
	a.keyer = new(store.Keyer)
	if secret != "" {
		if err := a.keyer.Learn(store.Spaced([]byte(secret), a.o.KeySpace)); err != nil {
			return nil, err
		}
	}
	if a.o.RedisURL == "" {
		return a.embedded()
	}
	if err := registerKnown(a.reg, a.keyer); err != nil {
		return nil, err
	}
	nudge := new(atomic.Pointer[limiter.Limiter]) // which is made of the store
	redis, err := redisstore.New(redisstore.Options{
		Redis: a.conn, Timeout: a.o.RedisTimeout, Registerer: a.reg, Tracer: tracer, Logger: a.log,
		OnChange: func() {
			if l := nudge.Load(); l != nil {
				l.Nudge()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make Redis store: %w", err)
	}
	a.undo.add("close Redis", func(context.Context) error { return redis.Close() })
	a.redis = redis
	buckets := a.o.MaxBuckets
	if buckets == 0 {
		buckets = DefaultFallbackBuckets
	}
	a.buckets = memstore.New(memstore.Options{MaxBuckets: buckets, Registerer: a.reg})
	l, err := a.limit(limiter.Options{
		Store: redis, OwnTimer: true, Timeout: a.o.RedisTimeout, Topology: redis, GivesBack: redis.GivesBack(),
		Local: a.buckets,
	})
	nudge.Store(a.limiter)
	return l, err
}

// embedded makes the store of a process without Redis. Its own buckets are all there are, so there is nothing to fall
// back to; but where it is one node of several, a limit with node scope must be divided.
func (a *App) embedded() (store.Store, error) {
	a.buckets = memstore.New(memstore.Options{MaxBuckets: a.o.MaxBuckets, Registerer: a.reg})
	if a.o.Nodes <= 1 {
		return a.buckets, nil
	}
	return a.limit(limiter.Options{Store: a.buckets, OwnTimer: true, Local: a.buckets, Remember: -1})
}

// limit puts the limiter over the stores that o names.
func (a *App) limit(o limiter.Options) (store.Store, error) {
	a.nodes = limiter.NewNodes(a.o.Nodes, a.reg, a.log)
	o.Nodes, o.Registerer, o.Logger = a.nodes, a.reg, a.log
	l, err := limiter.New(o)
	if err != nil {
		return nil, fmt.Errorf("make limiter: %w", err)
	}
	a.undo.add("end probes and corrections", func(context.Context) error { return l.Close() })
	a.limiter = l
	return l, nil
}

// degraded returns why decisions are made without the store that they belong to, a sentence each; none if they are not.
// It never says that this process should be restarted or asked no more: every request still has a decision.
func (a *App) degraded() []string {
	var why []string
	if a.redis == nil {
		return nil
	}
	if !known(a.keyer) {
		why = append(why, "Redis has not been reached yet, so the key secret is not known: limits answer by on_backend_failure")
	}
	for _, shard := range a.limiter.Down() {
		why = append(why, fmt.Sprintf("store shard %q is down: its limits answer by on_backend_failure", shard))
	}
	return why
}
