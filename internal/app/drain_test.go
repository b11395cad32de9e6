package app_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/app"
)

// C78b: a stop first says NOT_SERVING and still answers; a proxy that goes away when it hears so loses no call.
func TestDrainLosesNoCallC78(t *testing.T) {
	t.Parallel()
	o, _ := options(t, rules)
	o.DrainDelay = 2 * time.Second // half of it is enough for a machine that is busy
	a := start(t, o)
	conn := dial(t, a)
	wantCodes(t, conn, "api", "x", ok)

	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || first.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health before: got %v, %v, want SERVING", first, err)
	}
	var left atomic.Bool // the proxy has heard that it should go elsewhere
	var callers sync.WaitGroup
	var during atomic.Int64
	for range 8 {
		callers.Go(func() {
			client := rlsv3.NewRateLimitServiceClient(conn)
			for !left.Load() {
				if _, err := client.ShouldRateLimit(t.Context(), request("api", "x")); err != nil {
					t.Errorf("call during the drain: %v", err)
					return
				}
				during.Add(1)
			}
		})
	}
	stopped := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(stopped)
		stop(t, a)
	}()
	if next, err := watch.Recv(); err != nil || next.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health during the drain: got %v, %v, want NOT_SERVING", next, err)
	}
	if code, _ := get(t, a.Addr("http"), "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz during the drain: got status %d, want 503", code)
	}
	// Half the delay later the proxy has noticed.
	heard := time.NewTimer(o.DrainDelay / 2)
	defer heard.Stop()
	<-heard.C
	before := during.Load()
	if before == 0 {
		t.Error("no call was made during the drain")
	}
	left.Store(true)
	callers.Wait()

	<-stopped
	if took := time.Since(began); took < o.DrainDelay {
		t.Errorf("stopped after %v, want the drain delay of %v at least", took, o.DrainDelay)
	}
	if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("api", "x")); status.Code(err) != codes.Unavailable {
		t.Errorf("call afterwards: got %v, want UNAVAILABLE", err)
	}
}

// A stop whose deadline is before the end of the drain delay ends by its deadline.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	o, _ := options(t, rules)
	o.DrainDelay = time.Hour
	a, err := app.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := a.Stop(ctx); err == nil {
		t.Error("a stop that was cut short: got no error")
	}
	if took := time.Since(began); took > patience {
		t.Errorf("took %v", took)
	}
}
