package bench_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	goproto "google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers as answer says, and counts the keys it is asked for.
type server struct {
	rlsv3.UnimplementedRateLimitServiceServer
	answer func(n int) (rlsv3.RateLimitResponse_Code, error)

	mu   sync.Mutex
	keys map[string]int
	n    int
}

func (s *server) ShouldRateLimit(_ context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	s.mu.Lock()
	s.keys[r.Descriptors[0].Entries[0].Value]++
	s.n++
	n := s.n
	s.mu.Unlock()
	code, err := s.answer(n)
	if err != nil {
		return nil, err
	}
	return &rlsv3.RateLimitResponse{OverallCode: code}, nil
}

// seen returns how often each key was asked for: requests may still be on their way.
func (s *server) seen() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.keys)
}

// serve starts a gRPC server with grpc-go's own HTTP/2, and returns a load for it.
func serve(t *testing.T, answer func(n int) (rlsv3.RateLimitResponse_Code, error)) (*server, bench.Load) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{answer: answer, keys: map[string]int{}}
	g := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, bench.Load{
		Addr: l.Addr().String(), Message: message(t), Connections: 2, Streams: 4, Keys: 10, Count: 1000,
		Duration: 30 * time.Second, Seed: 1,
	}
}

func message(t *testing.T) bench.Message {
	t.Helper()
	data, err := goproto.Marshal(&rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{
		{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "k", Value: "u" + bench.Mark}, {Key: "again", Value: bench.Mark}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := bench.NewMessage(data)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func admit(int) (rlsv3.RateLimitResponse_Code, error) { return rlsv3.RateLimitResponse_OK, nil }

func TestClosedLoop(t *testing.T) {
	t.Parallel()
	s, load := serve(t, func(n int) (rlsv3.RateLimitResponse_Code, error) {
		switch n % 10 {
		case 0:
			return 0, status.Error(codes.Internal, "no")
		case 1:
			return rlsv3.RateLimitResponse_OVER_LIMIT, nil
		case 2:
			return rlsv3.RateLimitResponse_UNKNOWN, nil
		default:
			return rlsv3.RateLimitResponse_OK, nil
		}
	})
	r, err := bench.Run(t.Context(), load)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answers < load.Count || r.Answers > load.Count+8 || r.OK+r.Over+r.Failed != r.Answers {
		t.Errorf("got %+v, want 1,000 answers and at most those in flight more", r)
	}
	if got := r.OK * 10 / r.Answers; got != 6 && got != 7 {
		t.Errorf("got %d of %d admitted, want 7 in 10", r.OK, r.Answers)
	}
	if r.Over < 90 || r.Failed < 180 {
		t.Errorf("got %d over the limit, %d failed, want about 100 and 200", r.Over, r.Failed)
	}
	if r.Lat.P50 <= 0 || r.Lat.P50 > r.Lat.P99 || r.Lat.P99 > r.Lat.Max*1.01 {
		t.Errorf("got latencies %+v", r.Lat)
	}
	if keys := s.seen(); len(keys) != 10 || keys["u0000000003"] == 0 {
		t.Errorf("got keys %v, want ten of them, of ten digits", keys)
	}
}

func TestSpreads(t *testing.T) {
	t.Parallel()
	for spread, ok := range map[bench.Spread]func(keys map[string]int) bool{
		bench.Hot:  func(keys map[string]int) bool { return len(keys) == 1 },
		bench.Zipf: func(keys map[string]int) bool { return keys["u0000000000"] > 3*keys["u0000000009"] },
		bench.Sequence: func(keys map[string]int) bool {
			counts := slices.Collect(maps.Values(keys))
			return len(keys) == 10 && slices.Max(counts) <= slices.Min(counts)+1
		},
	} {
		s, load := serve(t, admit)
		load.Spread, load.Connections = spread, 1
		if _, err := bench.Run(t.Context(), load); err != nil {
			t.Fatal(err)
		}
		if keys := s.seen(); !ok(keys) {
			t.Errorf("%s: got keys %v", spread, keys)
		}
	}
}

// A server that stands still for half a second is charged for all who were due meanwhile, not for those alone who had been
// sent.
func TestOpenLoopChargesStalls(t *testing.T) {
	t.Parallel()
	var stall sync.Once
	release := make(chan struct{})
	_, load := serve(t, func(n int) (rlsv3.RateLimitResponse_Code, error) {
		if n >= 200 {
			stall.Do(func() { time.AfterFunc(500*time.Millisecond, func() { close(release) }) })
			<-release
		}
		return rlsv3.RateLimitResponse_OK, nil
	})
	load.Rate, load.Count, load.Streams = 1000, 1000, 1024
	r, err := bench.Run(t.Context(), load)
	if err != nil {
		t.Fatal(err)
	}
	// About half of the requests were due in the stall, and waited half of it on average.
	if r.Lat.P90 < 200_000 {
		t.Errorf("got p90 %v µs, want at least 200 ms: %+v", r.Lat.P90, r)
	}
	if r.Dropped != 0 {
		t.Errorf("got %d dropped, want 0", r.Dropped)
	}
}

func TestOpenLoopIsBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	_, load := serve(t, func(int) (rlsv3.RateLimitResponse_Code, error) {
		<-release
		return rlsv3.RateLimitResponse_OK, nil
	})
	load.Rate, load.Count, load.Duration = 2000, 0, 300*time.Millisecond
	r, err := bench.Run(t.Context(), load)
	close(release)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answers != 0 || r.Dropped < 100 {
		t.Errorf("got %d answers, %d dropped, want none and most of 600", r.Answers, r.Dropped)
	}
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	_, load := serve(t, admit)
	wrong := load
	wrong.Keys, wrong.Streams, wrong.Spread = 0, 0, "even"
	if _, err := bench.Run(t.Context(), wrong); err == nil || len(err.Error()) < 60 {
		t.Errorf("got %v, want three complaints", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := load
	gone.Addr = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.Run(t.Context(), gone); err == nil {
		t.Error("got no error where nobody listens")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bench.Run(ctx, load); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}
