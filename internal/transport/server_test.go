package transport

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deciderFunc is a Decider that is a function.
type deciderFunc func(context.Context, *engine.Request, *engine.Verdict) error

func (f deciderFunc) Decide(ctx context.Context, r *engine.Request, v *engine.Verdict) error {
	return f(ctx, r, v)
}

// allow answers every request with one bare status a descriptor.
func allow(_ context.Context, r *engine.Request, v *engine.Verdict) error {
	switch {
	case r.Domain == "":
		return engine.ErrEmptyDomain
	case len(r.Descriptors) == 0:
		return engine.ErrNoDescriptors
	}
	*v = engine.Verdict{Nearest: -1, Statuses: append(v.Statuses[:0], make([]engine.Status, len(r.Descriptors))...)}
	return nil
}

// always is a decider that gives every request the same verdict.
func always(want engine.Verdict) deciderFunc {
	return func(_ context.Context, _ *engine.Request, v *engine.Verdict) error {
		statuses := append(v.Statuses[:0], want.Statuses...)
		*v = want
		v.Statuses = statuses
		return nil
	}
}

// start serves o on loopback until the test ends and returns the server and its address.
func start(t testing.TB, o Options) (*GRPC, string) {
	t.Helper()
	if o.Decider == nil {
		o.Decider = deciderFunc(allow)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := NewGRPC(o)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := g.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return g, l.Addr().String()
}

// dial connects to addr until the test ends.
func dial(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cc.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return cc
}

// client starts a server and returns a client of it.
func client(t testing.TB, o Options) rlsv3.RateLimitServiceClient {
	t.Helper()
	_, addr := start(t, o)
	return rlsv3.NewRateLimitServiceClient(dial(t, addr))
}

// testContext ends with the test, or after what is long for any of them.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// metric returns the value of a counter or gauge, told by its name and all its labels' values.
func metric(t testing.TB, g prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			missing := len(m.GetLabel()) != len(labels)
			for _, l := range m.GetLabel() {
				missing = missing || !slices.Contains(labels, l.GetValue())
			}
			if !missing {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s of %q", name, labels)
	return 0
}

// eventually waits until done says so: for what another goroutine or the kernel does in its own time.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	ctx := testContext(t)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}
