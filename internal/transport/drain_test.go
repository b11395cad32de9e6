package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/health" // the client's side of health checking
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// dialAll returns a client of all servers at addrs, under the given service config.
func dialAll(t *testing.T, config string, addrs ...string) rlsv3.RateLimitServiceClient {
	t.Helper()
	r := manual.NewBuilderWithScheme("servers")
	var state resolver.State
	for _, a := range addrs {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	r.InitialState(state)
	return rlsv3.NewRateLimitServiceClient(dial(t, "servers:///", grpc.WithResolvers(r), grpc.WithDefaultServiceConfig(config)))
}

// TestDrainLosesNoCall drains one of two servers while callers ask without a pause. A caller that watches health leaves
// when told NOT_SERVING; one that does not is told by GOAWAY. Neither may lose a call.
func TestDrainLosesNoCall(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"health is watched": `{"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":""}}`,
		"told by GOAWAY":    `{"loadBalancingConfig":[{"pick_first":{}}]}`,
	}
	for name, config := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked [2]atomic.Int64
			var servers [2]*GRPC
			var addrs [2]string
			for i := range servers {
				servers[i], addrs[i] = start(t, Options{Decider: deciderFunc(func(ctx context.Context, r *engine.Request, v *engine.Verdict) error {
					asked[i].Add(1)
					return allow(ctx, r, v)
				})})
				servers[i].SetServing(true)
			}
			c := dialAll(t, config, addrs[:]...)
			ctx := testContext(t)
			stop := make(chan struct{})
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						if _, err := c.ShouldRateLimit(ctx, fullRequest()); err != nil {
							t.Errorf("lost: %v", err)
							return
						}
					}
				})
			}
			progress := func(server int, n int64) {
				from := asked[server].Load()
				eventually(t, "the callers go on", func() bool { return asked[server].Load() >= from+n })
			}
			progress(0, 100)
			servers[0].SetServing(false)
			if name == "told by GOAWAY" {
				progress(0, 100) // it is still served while proxies have not noticed
			}
			if err := servers[0].Drain(ctx); err != nil {
				t.Errorf("drain: %v", err)
			}
			progress(1, 1000)
			close(stop)
			callers.Wait()
		})
	}
}

// blocking is a decider that tells of each request and holds it until it is released.
type blocking struct {
	entered chan struct{}
	release chan struct{}
}

func newBlocking(n int) blocking {
	return blocking{make(chan struct{}, n), make(chan struct{})}
}

func (b blocking) Decide(ctx context.Context, r *engine.Request, v *engine.Verdict) error {
	b.entered <- struct{}{}
	select {
	case <-b.release:
		return allow(ctx, r, v)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestDrainAnswersWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	const calls = 50
	b := newBlocking(calls)
	g, addr := start(t, Options{Decider: b})
	c := rlsv3.NewRateLimitServiceClient(dial(t, addr))
	ctx := testContext(t)
	answers := make(chan error, calls)
	for range calls {
		go func() {
			_, err := c.ShouldRateLimit(ctx, fullRequest())
			answers <- err
		}()
	}
	for range calls {
		<-b.entered
	}
	drained := make(chan error, 1)
	go func() { drained <- g.Drain(ctx) }()
	eventually(t, "the listener is closed", func() bool {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			_ = nc.Close() // the server may have been faster
		}
		return err != nil
	})
	select {
	case err := <-drained:
		t.Fatalf("drained with calls under way: %v", err)
	default:
	}
	close(b.release)
	for range calls {
		if err := <-answers; err != nil {
			t.Errorf("lost: %v", err)
		}
	}
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
}

func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	b := newBlocking(1)
	g, addr := start(t, Options{Decider: b})
	c := rlsv3.NewRateLimitServiceClient(dial(t, addr))
	answer := make(chan error, 1)
	go func() {
		_, err := c.ShouldRateLimit(testContext(t), fullRequest())
		answer <- err
	}()
	<-b.entered
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := g.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("drain: got %v, want %v", err, context.Canceled)
	}
	if err := <-answer; status.Code(err) != codes.Unavailable {
		t.Errorf("the call under way: got %v, want UNAVAILABLE", err)
	}
	if err := g.Drain(testContext(t)); err != nil {
		t.Errorf("again: %v", err)
	}
}

// When Drain is back nobody decides any more, although it was told to hurry: what decisions need may be closed.
func TestDrainLeavesNobodyBehind(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	var left atomic.Bool
	g, addr := start(t, Options{Decider: deciderFunc(func(ctx context.Context, _ *engine.Request, _ *engine.Verdict) error {
		close(entered)
		<-ctx.Done()
		<-time.After(50 * time.Millisecond) // it has something to finish
		left.Store(true)
		return ctx.Err()
	})})
	c := rlsv3.NewRateLimitServiceClient(dial(t, addr))
	var calls sync.WaitGroup
	defer calls.Wait()
	calls.Go(func() { _, _ = c.ShouldRateLimit(testContext(t), fullRequest()) })
	<-entered
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := g.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("drain: got %v, want %v", err, context.Canceled)
	}
	if !left.Load() {
		t.Error("drained while a call was being decided")
	}
}

// TestDrainSendsWatchersHome holds that a health watch, which never ends by itself, is told and does not hold up a drain.
func TestDrainSendsWatchersHome(t *testing.T) {
	t.Parallel()
	g, addr := start(t, Options{})
	g.SetServing(true)
	w, err := healthpb.NewHealthClient(dial(t, addr)).Watch(testContext(t), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(testContext(t), 10*time.Second)
	defer cancel()
	if err := g.Drain(ctx); err != nil {
		t.Errorf("drain: %v", err)
	}
	for {
		resp, err := w.Recv()
		if err != nil {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("got %v, want UNAVAILABLE", err)
			}
			return
		}
		if resp.Status != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("got %v, want NOT_SERVING", resp.Status)
		}
	}
}

func TestServeAfterDrain(t *testing.T) {
	t.Parallel()
	g := NewGRPC(Options{Decider: deciderFunc(allow)})
	if err := g.Drain(testContext(t)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		t.Errorf("got %v, want %v", err, grpc.ErrServerStopped)
	}
}
