package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	goproto "google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
)

// TestCommonAnswerAllocations holds what one answer allocates in decoding, headers and encoding: the message's text, and
// the list of one buffer that gRPC wants. The number only goes down.
func TestCommonAnswerAllocations(t *testing.T) {
	verdict := engine.Verdict{Statuses: []engine.Status{{
		HasLimit: true, Name: "login", Requests: 5, Unit: bucket.Minute, Multiplier: 1, Quota: 5, Window: time.Minute,
		Remaining: 3, Reset: time.Second,
	}}}
	denial := verdict
	denial.Over = true
	denial.Statuses = []engine.Status{verdict.Statuses[0]}
	denial.Statuses[0].Over, denial.Statuses[0].RetryAfter = true, time.Second
	msg, err := goproto.Marshal(fullRequest())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		verdict engine.Verdict
		want    float64
	}{"allowed": {verdict, 2}, "denied": {denial, 2}} {
		s := newService(Options{Decider: always(tt.verdict), Headers: Headers{IETF: true}, RetryJitter: true}.withDefaults(), answered{})
		codec, c, data := newCodec(), new(call), mem.BufferSlice{mem.SliceBuffer(msg)}
		got := testing.AllocsPerRun(1000, func() {
			if err := codec.Unmarshal(data, c); err != nil {
				t.Fatal(err)
			}
			b, err := s.handle(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			out, err := codec.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			out.Free() // as gRPC does once it is written
		})
		if got > tt.want {
			t.Errorf("%s: got %v allocations, want at most %v", name, got, tt.want)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	within := engine.Status{
		HasLimit: true, Name: "login", Requests: 5, Unit: bucket.Minute, Multiplier: 1, Quota: 5, Window: time.Minute,
		Remaining: 3, Reset: time.Second,
	}
	over := within
	over.Over, over.Remaining, over.RetryAfter = true, 0, time.Minute
	for name, tt := range map[string]struct {
		o Options
		v engine.Verdict
	}{
		"statuses":     {Options{}, engine.Verdict{Statuses: []engine.Status{within}}},
		"headers":      {Options{Headers: Headers{IETF: true}}, engine.Verdict{Statuses: []engine.Status{within}}},
		"denial":       {Options{Headers: Headers{IETF: true}, RetryJitter: true, Problem: true}, engine.Verdict{Over: true, Statuses: []engine.Status{over}}},
		"metadata too": {Options{Headers: Headers{IETF: true}, RetryJitter: true, Problem: true, ResponseMetadata: true}, engine.Verdict{Over: true, Statuses: []engine.Status{over}}},
	} {
		b.Run(name, func(b *testing.B) {
			a, c := newAnswerer(tt.o.withDefaults()), asks("u1")
			c.verdict = tt.v
			b.ReportAllocs()
			for b.Loop() {
				a.answer(c, noon)
			}
		})
	}
}

// generatedService answers with generated types what the benchmark's decider would.
type generatedService struct {
	rlsv3.UnimplementedRateLimitServiceServer
	answer engine.Verdict
}

func (g generatedService) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return generatedResponse(&g.answer), nil
}

// cpuTime returns what this process has used of all processors: on a shared machine it says more than the clock does.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkService is a closed loop of 64 callers on one connection, client and server in one process: ours beside
// generated code, each with gRPC's defaults and tuned. The client's part is the same in all.
func BenchmarkService(b *testing.B) {
	answer := engine.Verdict{Statuses: []engine.Status{{
		HasLimit: true, Name: "login", Requests: 5, Unit: bucket.Minute, Multiplier: 1, Remaining: 3, Reset: time.Second,
	}}}
	ours := func(s *grpc.Server) {
		s.RegisterService(&rls, newService(Options{Decider: always(answer)}.withDefaults(), answered{}))
	}
	generated := func(s *grpc.Server) { rlsv3.RegisterRateLimitServiceServer(s, generatedService{answer: answer}) }
	codec := []grpc.ServerOption{grpc.ForceServerCodecV2(newCodec())}
	m := &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: fullRequest().Descriptors[:1]}
	for _, bm := range []struct {
		name     string
		register func(*grpc.Server)
		options  []grpc.ServerOption
	}{
		{"generated", generated, nil},
		{"generated, tuned", generated, Tuning()},
		{"ours", ours, codec},
		{"ours, tuned", ours, append(codec, Tuning()...)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			s := grpc.NewServer(bm.options...)
			bm.register(s)
			served := make(chan error, 1)
			go func() { served <- s.Serve(l) }()
			c := rlsv3.NewRateLimitServiceClient(dial(b, l.Addr().String()))
			b.ReportAllocs()
			b.SetParallelism(32)
			before := cpuTime(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := c.ShouldRateLimit(context.Background(), m); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			s.Stop()
			if err := <-served; err != nil {
				b.Error(err)
			}
		})
	}
}

// rulesFor returns n rules, each for one value of user, and one for all other values.
func rulesFor(b *testing.B, n int) *rule.Snapshot {
	b.Helper()
	const perFile = 5000 // of some 80 bytes each
	var files []rule.File
	for first := 0; first < n; first += perFile {
		var y strings.Builder
		y.WriteString("domain: shop\ndescriptors:\n")
		if first == 0 {
			y.WriteString("  - {key: user, rate_limit: {unit: year, requests_per_unit: 1000000}}\n")
		}
		for i := first; i < min(n, first+perFile); i++ {
			fmt.Fprintf(&y, "  - {key: user, value: \"%010d\", rate_limit: {unit: year, requests_per_unit: %d}}\n", i, 1_000_000+i)
		}
		files = append(files, rule.File{Name: fmt.Sprintf("%06d.yaml", first), Data: []byte(y.String())})
	}
	s, _, err := rule.Load(files, rule.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// requestBytes are what a whole request costs from its bytes to those of its answer, but for gRPC.
func requestBytes(b *testing.B, s *rule.Snapshot, entries ...string) {
	b.Helper()
	const keys = 100_000
	keyer, err := store.NewKeyer([]byte("sixteen or more bytes"))
	if err != nil {
		b.Fatal(err)
	}
	e, err := engine.New(engine.Options{
		Snapshots: rules{s}, Store: memstore.New(memstore.Options{}), Keyer: keyer, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		b.Fatal(err)
	}
	service := newService(Options{Decider: e, Headers: Headers{IETF: true}, RetryJitter: true, Problem: true}.withDefaults(), newMetrics(nil).grpc)
	msgs := make([][]byte, keys)
	for i := range msgs {
		m := wire{}.text(1, "shop")
		for _, key := range entries {
			m = m.bytes(2, wire{}.bytes(1, wire{}.text(1, key).text(2, fmt.Sprintf("%010d", i))))
		}
		msgs[i] = m
	}
	ask := func(msg []byte) {
		c := newCall()
		c.undecodable = c.decode(msg)
		out, err := service.decide(b.Context(), c, &answers)
		if err != nil {
			b.Fatal(err)
		}
		answers.Put(out)
		c.release()
	}
	for _, msg := range msgs {
		ask(msg)
	}
	r := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		ask(msgs[r.IntN(keys)])
	}
}

func BenchmarkRequest(b *testing.B) {
	s, _, err := rule.Load([]rule.File{{Name: "rules.yaml", Data: []byte(`
domain: shop
descriptors:
  - {key: key1, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: key2, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: key3, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: strict, rate_limit: {unit: year, requests_per_unit: 1}}
`)}}, rule.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("admitted", func(b *testing.B) { requestBytes(b, s, "key1") })
	b.Run("refused", func(b *testing.B) { requestBytes(b, s, "strict") })
	b.Run("three descriptors", func(b *testing.B) { requestBytes(b, s, "key1", "key2", "key3") })
}

// BenchmarkAmongRules asks in an order of chance for as many keys whatever the number of rules: what differs is what the
// caches do not hold of the rules.
func BenchmarkAmongRules(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { requestBytes(b, rulesFor(b, n), "user") })
	}
}
