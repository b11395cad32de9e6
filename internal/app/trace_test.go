package app_test

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	coltracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// receiver is an OTLP receiver by gRPC and by HTTP.
type receiver struct {
	coltracev1.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracev1.Span
	names []string // of services, from resources
}

func (r *receiver) Export(_ context.Context, req *coltracev1.ExportTraceServiceRequest) (*coltracev1.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range req.ResourceSpans {
		for _, attr := range rs.Resource.Attributes {
			if attr.Key == "service.name" {
				r.names = append(r.names, attr.Value.GetStringValue())
			}
		}
		for _, ss := range rs.ScopeSpans {
			r.spans = append(r.spans, ss.Spans...)
		}
	}
	return &coltracev1.ExportTraceServiceResponse{}, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var export coltracev1.ExportTraceServiceRequest
	body, err := io.ReadAll(req.Body)
	if err == nil {
		err = proto.Unmarshal(body, &export)
	}
	if err != nil || req.URL.Path != "/v1/traces" {
		http.Error(w, "want /v1/traces", http.StatusBadRequest)
		return
	}
	r.Export(req.Context(), &export)
}

// One sampled request is three spans in the caller's trace: the server's, the decision, and the call of Redis.
func TestTraces(t *testing.T) { // not parallel: the SDK reads the environment
	redis := redistest.Start(t)
	for _, protocol := range []app.TraceProtocol{app.TraceGRPC, app.TraceHTTP} {
		t.Run(map[app.TraceProtocol]string{app.TraceGRPC: "grpc", app.TraceHTTP: "http"}[protocol], func(t *testing.T) {
			r := new(receiver)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+r.listen(t, protocol))
			o, log := options(t, rules)
			o.Tracing = app.Tracing{Protocol: protocol}
			o.RedisURL, o.RedisTimeout = app.Secret(redis.URL()), patience
			a := start(t, o)
			eventually(t, "the key secret is known", func() bool { return strings.Contains(log.String(), "key secret read from Redis") })

			const traceID, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
			ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-"+parent+"-01")
			client := rlsv3.NewRateLimitServiceClient(dial(t, a))
			if _, err := client.ShouldRateLimit(ctx, request("api", "x"+strconv.Itoa(int(protocol)))); err != nil {
				t.Fatal(err)
			}
			stop(t, a) // sends what is left
			r.wantChain(t, traceID, parent)
		})
	}
}

// listen serves the receiver until the test ends.
func (r *receiver) listen(t *testing.T, protocol app.TraceProtocol) (addr string) {
	t.Helper()
	if protocol == app.TraceHTTP {
		s := httptest.NewServer(r)
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	coltracev1.RegisterTraceServiceServer(s, r)
	go s.Serve(ln)
	t.Cleanup(s.Stop)
	return ln.Addr().String()
}

// wantChain wants the three spans, each the child of the one before.
func (r *receiver) wantChain(t *testing.T, traceID, parent string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, want := range []struct {
		name string
		kind tracev1.Span_SpanKind
	}{
		{"envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", tracev1.Span_SPAN_KIND_SERVER},
		{"ratelimitd.decide", tracev1.Span_SPAN_KIND_INTERNAL},
		{"redisstore.Take", tracev1.Span_SPAN_KIND_CLIENT},
	} {
		i := slices.IndexFunc(r.spans, func(s *tracev1.Span) bool { return s.Name == want.name })
		if i < 0 {
			t.Fatalf("no span %q among %v", want.name, r.spans)
		}
		s := r.spans[i]
		if got := hex.EncodeToString(s.TraceId); got != traceID {
			t.Errorf("%s: got trace %s, want %s", s.Name, got, traceID)
		}
		if got := hex.EncodeToString(s.ParentSpanId); got != parent {
			t.Errorf("%s: got parent %s, want %s", s.Name, got, parent)
		}
		if s.Kind != want.kind {
			t.Errorf("%s: got kind %v, want %v", s.Name, s.Kind, want.kind)
		}
		parent = hex.EncodeToString(s.SpanId)
	}
	if len(r.spans) != 3 {
		t.Errorf("got %d spans, want 3: %v", len(r.spans), r.spans)
	}
	if !slices.Contains(r.names, "ratelimitd") {
		t.Errorf("service names: got %q, want ratelimitd", r.names)
	}
}

// With tracing off, a caller's trace is not looked at, and nothing is installed in the server.
func TestTracesOff(t *testing.T) {
	r := new(receiver)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+r.listen(t, app.TraceGRPC))
	o, _ := options(t, rules)
	a := start(t, o)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if _, err := rlsv3.NewRateLimitServiceClient(dial(t, a)).ShouldRateLimit(ctx, request("api", "x")); err != nil {
		t.Fatal(err)
	}
	stop(t, a)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spans) > 0 {
		t.Errorf("got spans %v, want none", r.spans)
	}
}
