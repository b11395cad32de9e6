package transport

import (
	"context"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// GRPC is the gRPC server: Envoy's RateLimitService, health and, if asked for, reflection. Safe for concurrent use.
type GRPC struct {
	server  *grpc.Server
	health  *healthService
	metrics *metrics
}

// NewGRPC returns a server that is not serving yet: health says NOT_SERVING until SetServing(true).
func NewGRPC(o Options) *GRPC {
	o = o.withDefaults()
	g := &GRPC{health: newHealthService(), metrics: newMetrics(o.Registerer)}
	own := []grpc.ServerOption{grpc.ForceServerCodecV2(newCodec())}
	if o.TLS != nil {
		own = append(own, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	g.server = grpc.NewServer(slices.Concat(own, Tuning(), limits(o), o.ServerOptions)...)
	services := guarded{g.server, func(where string, value any) {
		g.metrics.panics.Inc()
		logPanic(o.Logger, where, value)
	}}
	services.RegisterService(&rls, newService(o, g.metrics.grpc))
	healthpb.RegisterHealthServer(services, g.health)
	if o.Reflection {
		reflection.Register(services)
	}
	return g
}

// Limits on what one connection may do. docs/wire.md tells operators of them.
const (
	maxStreams        = 1024
	maxHeaderList     = 16 << 10
	maxMessage        = 4 << 20
	connectionTimeout = 5 * time.Second // to finish the handshake
	maxConnectionIdle = 15 * time.Minute
	maxConnectionAge  = 30 * time.Minute // unless said otherwise; ±10 % by gRPC, so that callers do not reconnect together
	maxAgeGrace       = 10 * time.Second // unless said otherwise
	pingEvery         = time.Minute      // finds peers that vanished without a word
	pingTimeout       = 20 * time.Second

	// minPingInterval is how often a client may ping an idle connection. gRPC clients can ask for 10 s at the least, and
	// network jitter shortens the distance between two pings, so the bound is well below that.
	minPingInterval = 5 * time.Second
)

func limits(o Options) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.ConnectionTimeout(connectionTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle:     maxConnectionIdle,
			MaxConnectionAge:      o.MaxAge,
			MaxConnectionAgeGrace: o.MaxAgeGrace,
			Time:                  pingEvery,
			Timeout:               pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             minPingInterval,
			PermitWithoutStream: true,
		}),
	}
}

// Figures chosen by measurement (BenchmarkService, docs/wire.md). Workers keep the stacks of handlers, which otherwise
// grow anew for every request, and static windows do without the pings that estimate bandwidth. A worker held by a slow
// answer starves nobody: gRPC starts a goroutine when no worker is free.
const (
	streamWorkers = 256
	windowSize    = 1 << 20
)

// Tuning returns the options by which gRPC is set up for many short calls, for whoever measures what is gRPC's own.
func Tuning() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.NumStreamWorkers(streamWorkers),
		grpc.StaticStreamWindowSize(windowSize),
		grpc.StaticConnWindowSize(windowSize),
	}
}

// Serve accepts connections on l until Drain, and then returns nil. It closes l.
func (g *GRPC) Serve(l net.Listener) error {
	return g.server.Serve(countingListener{l, g.metrics.connections})
}

// SetServing tells health checks and their watchers whether to send requests here. Requests are answered either way.
// After Drain it does nothing.
func (g *GRPC) SetServing(serving bool) { g.health.setServing(serving) }

// Drain says NOT_SERVING, closes the listeners, tells every connection to go away (GOAWAY), answers what is under way and
// returns when the connections are closed. When ctx ends first, it closes them as they are, and returns ctx's error as soon
// as every request under way has noticed: none is after it. Callers that must not lose a call say SetServing(false) first and
// wait until the proxies have noticed. It may be called again.
func (g *GRPC) Drain(ctx context.Context) error {
	g.health.Shutdown()
	g.health.send()
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.server.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		g.server.Stop()
		<-done // GracefulStop waits for the handlers
		return context.Cause(ctx)
	}
}
