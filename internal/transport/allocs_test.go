package transport

import (
	"context"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	goproto "google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
)

// raw is a codec that looks at nothing: what a call allocates with it is gRPC's own.
type raw struct{ answer []byte }

func (r raw) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(*[]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
	}
	return mem.BufferSlice{mem.SliceBuffer(r.answer)}, nil
}
func (raw) Unmarshal(mem.BufferSlice, any) error { return nil }
func (raw) Name() string                         { return "proto" }

// rules are a snapshot that stays.
type rules struct{ *rule.Snapshot }

func (r rules) Current() *rule.Snapshot { return r.Snapshot }

// TestRequestAllocations holds what a whole request allocates, from the wire to a bucket and back, beyond what gRPC does by
// itself: at most two objects. The number only goes down.
func TestRequestAllocations(t *testing.T) {
	if raceEnabled {
		return // the detector allocates; make test runs this without it, too
	}
	snapshot, _, err := rule.Load([]rule.File{{Name: "rules.yaml", Data: []byte(`
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000000}}
  - {key: spent, rate_limit: {unit: hour, requests_per_unit: 0}}
`)}}, rule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	keyer, err := store.NewKeyer([]byte("sixteen or more bytes"))
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	e, err := engine.New(engine.Options{Snapshots: rules{snapshot}, Store: memstore.New(memstore.Options{}), Keyer: keyer, Registerer: metrics})
	if err != nil {
		t.Fatal(err)
	}
	_, ours := start(t, Options{
		Decider: e, Snapshots: rules{snapshot}, Registerer: metrics, Headers: Headers{IETF: true}, RetryJitter: true, Problem: true,
	})

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bare := grpc.NewServer(append(Tuning(), grpc.ForceServerCodecV2(raw{make([]byte, 200)}))...)
	answer := new(struct{})
	desc := rls
	desc.Methods = []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		return answer, decode(answer)
	}}}
	bare.RegisterService(&desc, nil)
	served := make(chan error, 1)
	go func() { served <- bare.Serve(l) }()
	t.Cleanup(func() {
		bare.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})

	method := "/" + rls.ServiceName + "/ShouldRateLimit"
	allocations := func(addr string, msg []byte) float64 {
		cc := dial(t, addr, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})))
		return testing.AllocsPerRun(3000, func() {
			if err := cc.Invoke(context.Background(), method, &msg, answer); err != nil {
				t.Fatal(err)
			}
		})
	}
	for name, entry := range map[string]string{"admitted": "user", "refused": "spent"} {
		r := fullRequest()
		r.Domain, r.Descriptors, r.HitsAddend = "shop", r.Descriptors[:1], 0
		d := r.Descriptors[0]
		d.Entries, d.Limit, d.HitsAddend, d.IsNegativeHits = d.Entries[:1], nil, nil, false
		d.Entries[0].Key, d.Entries[0].Value = entry, "u1"
		msg, err := goproto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		got, own := allocations(ours, msg), allocations(l.Addr().String(), msg)
		t.Logf("%s: %v allocations of client and server, %v of them gRPC's own", name, got, own)
		if got-own > 2 {
			t.Errorf("%s: got %v allocations more than gRPC's own %v, want at most 2", name, got-own, own)
		}
	}
}
