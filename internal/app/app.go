package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/servertls"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/transport"
)

// App is one process of the service. Its methods are safe for concurrent use. Made by New.
type App struct {
	o       Options
	log     *slog.Logger
	reg     *prometheus.Registry
	rules   *config.Live
	source  config.Source
	nudge   func() // has the source look again
	engine  *engine.Engine
	grpc    *transport.GRPC
	http    http.Handler
	admin   http.Handler
	conn    *redisconn.Redis  // nil: the embedded store
	redis   *redisstore.Store // nil with conn
	buckets *memstore.Store   // in this process
	limiter *limiter.Limiter  // nil: the embedded store of a single node
	nodes   *limiter.Nodes    // nil with limiter
	keyer   *store.Keyer
	people  people

	adminTLS *servertls.Server // nil: the admin port speaks plain text
	tls      *servertls.Server // nil: the gRPC port speaks plain text
	serving  atomic.Bool
	failed   chan error // the first server that ended by itself

	mu        sync.Mutex // guards what follows
	undo      cleanup
	started   bool
	listeners map[string]net.Listener

	stop    sync.Once
	stopErr error
}

// New builds a process that does not serve yet: the rules are loaded, the store is made (Redis is not waited for), and
// the engine and its doors are wired. The error lists every option that is wrong (an *OptionsError), or every problem of
// the rules; then nothing is left behind.
func New(o Options) (_ *App, err error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.RedisTimeout == 0 {
		o.RedisTimeout = DefaultRedisTimeout
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = DefaultStopTimeout
	}
	if err := o.validate(); err != nil {
		return nil, &OptionsError{err}
	}
	a := &App{o: o, log: o.Logger, reg: newRegistry(o.Build), failed: make(chan error, 1), listeners: map[string]net.Listener{}}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.Background(), o.StopTimeout)
			defer cancel()
			err = errors.Join(err, a.undo.run(ctx, a.log))
		}
	}()

	// One straight function on purpose: what depends on what can be read from top to bottom.
	if err := a.newConn(); err != nil {
		return nil, err
	}
	a.newLedger()
	if err := a.newRules(); err != nil {
		return nil, err
	}

	var tracer trace.Tracer
	var serverOptions []grpc.ServerOption
	provider, err := newTracerProvider(context.Background(), o.Tracing, o.Build)
	if err != nil {
		return nil, err
	}
	if provider != nil {
		a.undo.add("send the last spans", provider.Shutdown)
		tracer = provider.Tracer("github.com/ratelimitd/ratelimitd")
		serverOptions = append(serverOptions, grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(provider),
			otelgrpc.WithPropagators(propagation.TraceContext{}),
			otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
		)))
	}

	buckets, err := a.newStore(tracer)
	if err != nil {
		return nil, err
	}
	a.engine, err = engine.New(engine.Options{
		Snapshots: a.rules, Store: buckets, Keyer: a.keyer,
		Shadow: o.Shadow, Quota: o.Quota, OverrideMax: o.OverrideMax,
		Registerer: a.reg, Logger: a.log, Tracer: tracer,
	})
	if err != nil {
		return nil, fmt.Errorf("make engine: %w", err)
	}
	tls, err := a.newTLS()
	if err != nil {
		return nil, err
	}
	doors := transport.Options{
		Decider: a.engine, Snapshots: a.rules, Serving: a.serving.Load, Degraded: a.degraded,
		Reflection: o.Reflection, ResponseMetadata: o.ResponseMetadata, RetryJitter: o.RetryJitter, Problem: o.Problem,
		Headers: o.Headers, TLS: tls, MaxAge: o.MaxConnectionAge, MaxAgeGrace: o.MaxConnectionAgeGrace, Registerer: a.reg, Logger: a.log, ServerOptions: serverOptions,
	}
	a.grpc = transport.NewGRPC(doors)
	a.undo.add("end the gRPC server", a.grpc.Drain) // it has goroutines before it serves
	a.http = transport.HTTP(doors)
	if err := a.newAdminTLS(); err != nil {
		return nil, err
	}
	if err := a.newOverrides(); err != nil {
		return nil, err
	}
	a.admin = a.newAdmin(adminPages(a.reg, a.rules, transport.RLConfig(a.rules)))
	return a, nil
}

// errStarted says that a process starts once.
var errStarted = errors.New("start: already started or stopped")

// Start listens on all ports, and then serves them all; it does not wait for Redis. ctx bounds the start only. The error
// names the flag and the address that could not be had; then Stop has been done. Start after Stop, or twice, is an error.
func (a *App) Start(ctx context.Context) error {
	err := a.start(ctx)
	if err == nil || errors.Is(err, errStarted) {
		return err
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.o.StopTimeout)
	defer cancel()
	return errors.Join(err, a.Stop(stopping))
}

func (a *App) start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started {
		return errStarted
	}
	a.started = true

	for _, l := range []struct{ name, flag, addr string }{
		{"grpc", "--grpc-addr", a.o.GRPCAddr},
		{"http", "--http-addr", a.o.HTTPAddr},
		{"admin", "--admin-addr", a.o.AdminAddr},
	} {
		ln, err := listen(ctx, l.addr)
		if err != nil {
			return fmt.Errorf("%s %q: %w", l.flag, l.addr, err)
		}
		a.listeners[l.name] = ln
		// Until a server has taken the listener, nobody else closes it.
		a.undo.add("close the "+l.name+" port", func(context.Context) error { return closeListener(ln) })
	}

	if a.redis != nil && a.o.KeySecret == "" {
		p := &pupil{redis: a.redis, keyer: a.keyer, space: a.o.KeySpace, log: a.log}
		a.undo.add("stop reading the key secret", background(p.run))
	}
	if a.redis != nil {
		p := &pulse{beat: a.redis.Nodes, learn: a.nodes.Learn, leave: a.redis.Leave}
		a.undo.add("stop counting nodes", background(p.run))
	}
	if a.adminTLS != nil {
		a.undo.add("stop following the admin port's certificate", background(a.adminTLS.Run))
	}
	if a.tls != nil {
		a.undo.add("stop following the certificate", background(a.tls.Run))
	}
	if a.o.MemoryLimit > 0 {
		g := &garbage{limit: a.o.MemoryLimit, buckets: a.buckets.Bytes}
		g.follow()
		a.undo.add("stop following the heap", background(g.run))
	}
	a.serveHTTP("admin", a.admin)
	a.serveHTTP("http", a.http)
	a.serve("grpc", a.grpc.Serve)
	a.undo.add("finish gRPC calls", a.grpc.Drain)
	a.undo.add("answer who waits in a queue", func(context.Context) error {
		a.engine.Drain()
		return nil
	})
	a.startPeople()
	a.undo.add("stop following the rules", background(a.followRules))
	a.undo.add("tell proxies and wait", a.leave)
	a.await()
	a.log.Info("serving", "grpc", a.listeners["grpc"].Addr().String(), "http", a.listeners["http"].Addr().String(),
		"admin", a.listeners["admin"].Addr().String(), "store", a.storeName())
	return nil
}

func (a *App) storeName() string {
	if a.redis != nil {
		return "redis"
	}
	return "memory"
}

// leave says "not serving", and keeps serving for the drain delay, within which proxies notice.
func (a *App) leave(ctx context.Context) error {
	a.serving.Store(false)
	a.grpc.SetServing(false)
	if a.o.DrainDelay == 0 {
		return nil
	}
	a.log.Info("draining: health says not serving, calls are still answered; a second signal ends at once",
		"delay", a.o.DrainDelay.String())
	t := time.NewTimer(a.o.DrainDelay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop undoes Start and New in reverse, outside in: health says "not serving", the drain delay passes, calls in flight
// are answered, ports are closed, then stores. It returns within ctx's deadline and a second a step; the error joins
// those of the steps. A second call waits for the first and returns the same.
func (a *App) Stop(ctx context.Context) error {
	a.stop.Do(func() {
		a.mu.Lock()
		a.started = true
		undo := a.undo
		a.undo = cleanup{}
		a.mu.Unlock()
		a.stopErr = undo.run(ctx, a.log)
	})
	return a.stopErr
}

// Addr returns the address of a port, "grpc", "http" or "admin", once Start has returned; nil before, and for any other
// name.
func (a *App) Addr(name string) net.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ln := a.listeners[name]; ln != nil {
		return ln.Addr()
	}
	return nil
}

// Run builds a process and serves until ctx ends or a server fails; then it stops, within the drain delay and the stop
// timeout. Every value from o.Reload makes it read the rules again. It returns nil if ctx ended it and the stop was
// clean.
func Run(ctx context.Context, o Options) error {
	a, err := New(o)
	if err != nil {
		return err
	}
	if err := a.Start(ctx); err != nil {
		return err
	}
	err = a.wait(ctx)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.o.DrainDelay+a.o.StopTimeout)
	defer cancel()
	return errors.Join(err, a.Stop(stopping))
}

func (a *App) wait(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-a.failed:
			return err
		case <-a.o.Reload:
			a.Reload()
		}
	}
}
