package transport

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// TestServiceEveryField sends every field of a request through a real server and gets every field of an answer back.
func TestServiceEveryField(t *testing.T) {
	t.Parallel()
	var got engine.Request
	verdict := engine.Verdict{Over: true, Nearest: 1, Statuses: []engine.Status{
		{Unlimited: true, Remaining: bucket.MaxHits},
		{
			Over: true, HasLimit: true, Name: "login", Path: "p", Requests: 5, Unit: bucket.Week, Multiplier: 2, Quota: 5,
			Window: 14 * 24 * time.Hour, Reset: 90*time.Second + 1, RetryAfter: 90*time.Second + 1,
		},
		{},
		{},
	}}
	c := client(t, Options{
		Headers: Headers{IETF: true}, Problem: true, ResponseMetadata: true,
		Decider: deciderFunc(func(ctx context.Context, r *engine.Request, v *engine.Verdict) error {
			got = engine.Request{Domain: r.Domain, Hits: r.Hits}
			for _, d := range r.Descriptors {
				d.Entries = append([]rule.Entry(nil), d.Entries...)
				got.Descriptors = append(got.Descriptors, d)
			}
			return always(verdict)(ctx, r, v)
		}),
	})
	resp, err := c.ShouldRateLimit(testContext(t), fullRequest())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(engineRequest(fullRequest()), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	want := generatedResponse(&verdict)
	if diff := cmp.Diff(want, resp, protocmp.Transform(), protocmp.IgnoreFields(resp,
		"response_headers_to_add", "raw_body", "dynamic_metadata")); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	wantHeaders := map[string]string{
		"RateLimit-Policy": `"login";q=5;w=1209600`, "RateLimit": `"login";r=0;t=91`, "Retry-After": "91",
		"content-type": "application/problem+json",
	}
	if diff := cmp.Diff(wantHeaders, headerMap(t, resp.ResponseHeadersToAdd)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if !strings.Contains(string(resp.RawBody), "Quota Exceeded") {
		t.Errorf("body: got %q, want a problem", resp.RawBody)
	}
	if got := resp.DynamicMetadata.AsMap()["limit"]; got != "login" {
		t.Errorf("metadata's limit: got %v, want login", got)
	}
}

// TestC29OddRequests holds case C29: what errs, and that every other request gets one status a descriptor.
func TestC29OddRequests(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	_, addr := start(t, Options{Registerer: reg})
	cc := dial(t, addr)
	ask := func(b []byte) (*rlsv3.RateLimitResponse, error) {
		var out rawMessage
		err := cc.Invoke(testContext(t), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, rawMessage(b), &out, grpc.ForceCodecV2(rawCodec{}))
		if err != nil {
			return nil, err
		}
		return unmarshalled(t, out), nil
	}
	domain := slices.Clip(wire{}.text(1, "d")) // so that appending to it copies
	errs := map[string]struct {
		msg  wire
		want *status.Status
	}{
		"undecodable":    {wire("GET / HTTP/1.1"), statusUndecodable},
		"empty":          {wire{}, statusEmptyDomain},
		"empty domain":   {wire{}.bytes(2, nil), statusEmptyDomain},
		"no descriptors": {domain, statusNoDescriptors},
		"too large, empty domain": {
			wire(strings.Repeat("\x12\x00", maxDescriptors+1)), statusEmptyDomain,
		},
	}
	for name, tt := range errs {
		if _, err := ask(tt.msg); status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != tt.want.Message() {
			t.Errorf("%s: got %v, want %v", name, err, tt.want.Err())
		}
	}
	answers := map[string]struct {
		msg      wire
		statuses int
		code     rlsv3.RateLimitResponse_Code
	}{
		"no entries":            {domain.bytes(2, nil), 1, rlsv3.RateLimitResponse_OK},
		"an entry of nothing":   {domain.bytes(2, wire{}.bytes(1, nil)), 1, rlsv3.RateLimitResponse_OK},
		"invalid UTF-8":         {wire{}.text(1, "\xff").bytes(2, wire{}.bytes(1, wire{}.text(1, "\xc3").text(2, "\x00\xfe"))), 1, rlsv3.RateLimitResponse_OK},
		"unknown fields":        {domain.group(20, nil).bytes(2, wire{}.fixed32(9)), 1, rlsv3.RateLimitResponse_OK},
		"three, in order":       {domain.bytes(2, nil).bytes(2, nil).bytes(2, nil), 3, rlsv3.RateLimitResponse_OK},
		"100,000 descriptors":   {append(domain, strings.Repeat("\x12\x00", 100_000)...), 100_000, rlsv3.RateLimitResponse_OK},
		"200,000 descriptors":   {append(domain, strings.Repeat("\x12\x00", 200_000)...), 200_000, rlsv3.RateLimitResponse_OVER_LIMIT},
		"a descriptor too deep": {domain.bytes(2, []byte(strings.Repeat("\x0a\x00", maxEntries+1))), 1, rlsv3.RateLimitResponse_OVER_LIMIT},
	}
	for name, tt := range answers {
		resp, err := ask(tt.msg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := len(resp.Statuses); got != tt.statuses || resp.OverallCode != tt.code {
			t.Errorf("%s: got %v with %d statuses, want %v with %d", name, resp.OverallCode, got, tt.code, tt.statuses)
		}
	}
	for code, want := range map[string]int{"OK": len(answers), "InvalidArgument": len(errs), "Unavailable": 0} {
		if got := metric(t, reg, "ratelimitd_transport_requests_total", "grpc", code); got != float64(want) {
			t.Errorf("requests answered %s: counted %v, want %d", code, got, want)
		}
	}
}

// rawMessage and rawCodec send and receive bytes as they are.
type rawMessage []byte

type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(rawMessage))}, nil
}

func (rawCodec) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*rawMessage) = b.Materialize()
	return nil
}

func (rawCodec) Name() string { return proto.Name }

var _ encoding.CodecV2 = rawCodec{}

func TestStatusOfErrors(t *testing.T) {
	t.Parallel()
	tests := map[error]codes.Code{
		engine.ErrNoRules:        codes.Unavailable,
		engine.ErrEmptyDomain:    codes.InvalidArgument,
		engine.ErrNoDescriptors:  codes.InvalidArgument,
		errMalformed:             codes.InvalidArgument,
		context.Canceled:         codes.Canceled,
		context.DeadlineExceeded: codes.DeadlineExceeded,
		errors.New("password=1"): codes.Internal,
	}
	for err, want := range tests {
		st := statusOf(err)
		if st.Code() != want {
			t.Errorf("%v: got %v, want %v", err, st.Code(), want)
		}
		if strings.Contains(st.Message(), "password") {
			t.Errorf("%v: a stranger is told %q", err, st.Message())
		}
	}
}

func TestNoRulesIsUnavailable(t *testing.T) {
	t.Parallel()
	c := client(t, Options{Decider: deciderFunc(func(context.Context, *engine.Request, *engine.Verdict) error { return engine.ErrNoRules })})
	if _, err := c.ShouldRateLimit(testContext(t), fullRequest()); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
}

// TestMessagesBeyondTheLimit holds that a message of more than 4 MiB is refused as that and one below is decided.
func TestMessagesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	c := client(t, Options{})
	m := fullRequest()
	m.Descriptors[0].Entries[0].Value = strings.Repeat("v", maxMessage)
	if _, err := c.ShouldRateLimit(testContext(t), m); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("more than 4 MiB: got %v, want RESOURCE_EXHAUSTED", err)
	}
	m.Descriptors[0].Entries[0].Value = strings.Repeat("v", maxMessage-1000)
	if _, err := c.ShouldRateLimit(testContext(t), m); err != nil {
		t.Errorf("less than 4 MiB: %v", err)
	}
}

// TestLongValuesAreDecided holds that header values of 60 KiB in 32 descriptors earn a decision, with metadata too.
func TestLongValuesAreDecided(t *testing.T) {
	t.Parallel()
	m := fullRequest()
	m.Descriptors = m.Descriptors[:1]
	m.Descriptors[0].Entries[0].Value = strings.Repeat("v", 60<<10)
	for len(m.Descriptors) < 32 {
		m.Descriptors = append(m.Descriptors, m.Descriptors[0])
	}
	for _, envoy := range []bool{false, true} {
		c := client(t, Options{ResponseMetadata: true, Decider: deciderFunc(func(ctx context.Context, r *engine.Request, v *engine.Verdict) error {
			err := allow(ctx, r, v)
			v.Envoy = envoy
			return err
		})})
		resp, err := c.ShouldRateLimit(testContext(t), m)
		if err != nil {
			t.Fatal(err)
		}
		if resp.OverallCode != rlsv3.RateLimitResponse_OK || len(resp.Statuses) != 32 {
			t.Errorf("got %v with %d statuses, want OK with 32", resp.OverallCode, len(resp.Statuses))
		}
	}
}

// TestPanicIsAnInternalError holds that a panic ends one request, is logged with its stack, counted, and nothing else.
func TestPanicIsAnInternalError(t *testing.T) {
	t.Parallel()
	var log syncBuilder
	reg := prometheus.NewRegistry()
	c := client(t, Options{
		Registerer: reg, Logger: slog.New(slog.NewJSONHandler(&log, nil)),
		Decider: deciderFunc(func(ctx context.Context, r *engine.Request, v *engine.Verdict) error {
			if r.Domain == "panic" {
				panic("a bug")
			}
			return allow(ctx, r, v)
		}),
	})
	bad := fullRequest()
	bad.Domain = "panic"
	if _, err := c.ShouldRateLimit(testContext(t), bad); status.Code(err) != codes.Internal {
		t.Errorf("got %v, want INTERNAL", err)
	}
	if _, err := c.ShouldRateLimit(testContext(t), fullRequest()); err != nil {
		t.Errorf("the next request: %v", err)
	}
	if got := log.String(); !strings.Contains(got, "a bug") || !strings.Contains(got, "TestPanicIsAnInternalError") {
		t.Errorf("log: got %q, want the panic and its stack", got)
	}
	if got := metric(t, reg, "ratelimitd_transport_panics_total"); got != 1 {
		t.Errorf("panics: counted %v, want 1", got)
	}
}

// syncBuilder is a strings.Builder for several goroutines.
type syncBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuilder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuilder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestHeldAnswersStarveNobody holds that answers which wait in a queue, more of them than there are stream workers, leave
// the server free for others on the same connection.
func TestHeldAnswersStarveNobody(t *testing.T) {
	t.Parallel()
	const held = 2 * streamWorkers
	entered, release := make(chan struct{}, held), make(chan struct{})
	c := client(t, Options{Decider: deciderFunc(func(ctx context.Context, r *engine.Request, v *engine.Verdict) error {
		if r.Domain == "queue" {
			entered <- struct{}{}
			<-release
		}
		return allow(ctx, r, v)
	})})
	ctx := testContext(t)
	answers := make(chan error, held)
	for range held {
		go func() {
			m := fullRequest()
			m.Domain = "queue"
			_, err := c.ShouldRateLimit(ctx, m)
			answers <- err
		}()
	}
	for range held {
		<-entered
	}
	for range 100 {
		if _, err := c.ShouldRateLimit(ctx, fullRequest()); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	for range held {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

func TestInterceptorsAreCalled(t *testing.T) {
	t.Parallel()
	var method string
	c := client(t, Options{ServerOptions: []grpc.ServerOption{grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			method = info.FullMethod
			return next(ctx, req)
		})}})
	if _, err := c.ShouldRateLimit(testContext(t), fullRequest()); err != nil {
		t.Fatal(err)
	}
	if want := "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"; method != want {
		t.Errorf("method: got %q, want %q", method, want)
	}
}
