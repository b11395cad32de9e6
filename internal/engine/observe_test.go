package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

const observeRules = `
domain: shop
defaults: {algorithm: fixed_window}
descriptors:
  - {key: api, rate_limit: {name: per-client, unit: hour, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
`

func TestMetricsBeforeAndAfterDecisions(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	e := newEngine(t, observeRules, engine.Options{Registerer: r})
	// A rule that nobody asked for yet is there already, at 0, so that a rate can be taken from its first hit.
	if got := metrics(t, r)[`ratelimitd_hits_total{domain="shop",limit="per-client",rule="api"}`]; got != "0" {
		t.Errorf("before any request: got %q hits, want 0", got)
	}
	for range 3 {
		decide(t, e, "shop | [api=x]")
	}
	decide(t, e, "shop | [free=x] [nothing=x]")
	want := map[string]string{
		`ratelimitd_decisions_total{domain="shop",origin="store",rule="api",verdict="ok"}`:   "1",
		`ratelimitd_decisions_total{domain="shop",origin="store",rule="api",verdict="over"}`: "2",
		`ratelimitd_decisions_total{domain="shop",origin="none",rule="",verdict="ok"}`:       "1",
		`ratelimitd_decision_duration_seconds`:                                               "4",
		`ratelimitd_hits_total{domain="shop",limit="per-client",rule="api"}`:                 "3",
		`ratelimitd_hits_within_total{domain="shop",limit="per-client",rule="api"}`:          "1",
		`ratelimitd_hits_over_total{domain="shop",limit="per-client",rule="api"}`:            "2",
		`ratelimitd_hits_near_total{domain="shop",limit="per-client",rule="api"}`:            "1",
		`ratelimitd_unmatched_descriptors_total{domain="shop"}`:                              "1",
		`ratelimitd_overrides_invalid_total{domain="shop"}`:                                  "0",
		`ratelimitd_too_many_charges_total{domain="shop"}`:                                   "0",
		`ratelimitd_blocked_total{domain="shop"}`:                                            "0",
		`ratelimitd_queue_waiters`:                                                           "0",
	}
	got := metrics(t, r)
	for name := range got {
		if _, ok := want[name]; !ok && !strings.Contains(name, "_unknown") && !strings.Contains(name, "_override") {
			t.Errorf("unexpected series %s", name)
		}
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: got %q, want %q", name, got[name], want[name])
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	faults, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(faults) != 0 {
		t.Errorf("promlint: got %v, %v, want nothing to say", faults, err)
	}
}

// The dots of keys may make two paths one label.
func TestMetricsOfPathsThatLookAlike(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	e := newEngine(t, `
domain: shop
descriptors:
  - {key: a.b, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: a, descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]}
  - {key: v, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: v, value: x, rate_limit: {unit: hour, requests_per_unit: 1}}
`, engine.Options{Registerer: r})
	long := strings.Repeat("x", 300)
	decide(t, e, "shop | [a.b=x] [a=x, b=x] [v=x] [v=y] [v_x=y] [v="+long+"1] [v="+long+"2]")
	got := metrics(t, r)
	for rule, want := range map[string]string{"a.b": "2", "v_x": "1", "v_y": "1", "v_" + long[:256-len("shop.v_")]: "2"} {
		if name := fmt.Sprintf(`ratelimitd_hits_total{domain="shop",limit="hour",rule=%q}`, rule); got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
}

// recorder is a tracer that remembers the spans it was asked for.
type recorder struct {
	embedded.Tracer
	spans []*recordedSpan
}

type recordedSpan struct {
	trace.Span
	name  string
	attrs map[string]string
	ended bool
}

func (r *recorder) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &recordedSpan{Span: noop.Span{}, name: name, attrs: make(map[string]string)}
	r.spans = append(r.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *recordedSpan) IsRecording() bool { return true }
func (s *recordedSpan) SetAttributes(attrs ...attribute.KeyValue) {
	for _, a := range attrs {
		s.attrs[string(a.Key)] = a.Value.String()
	}
}
func (s *recordedSpan) End(...trace.SpanEndOption) { s.ended = true }

func TestSpans(t *testing.T) {
	t.Parallel()
	r := new(recorder)
	e := newEngine(t, observeRules, engine.Options{Tracer: r, Registerer: prometheus.NewRegistry()})
	req, v := parse(t, "shop | [free=x] [api=x]h2"), new(engine.Verdict)

	if err := e.Decide(t.Context(), req, v); err != nil || len(r.spans) != 0 {
		t.Fatalf("not recorded: got %d spans and error %v, want none", len(r.spans), err)
	}
	parent := &recordedSpan{Span: noop.Span{}, attrs: make(map[string]string)}
	if err := e.Decide(trace.ContextWithSpan(t.Context(), parent), req, v); err != nil {
		t.Fatal(err)
	}
	if len(r.spans) != 1 || !r.spans[0].ended {
		t.Fatalf("got %+v, want one ended span", r.spans)
	}
	want := map[string]string{
		"ratelimitd.domain": "shop", "ratelimitd.verdict": "over", "ratelimitd.origin": "store", "ratelimitd.descriptors": "2",
		"ratelimitd.charges": "1", "ratelimitd.rule": "api", "ratelimitd.limit": "per-client", "ratelimitd.remaining": "0",
	}
	if diff := cmp.Diff(want, r.spans[0].attrs); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

// logged runs requests and returns the log's lines.
func logged(t *testing.T, level slog.Level, requests ...*engine.Request) []map[string]any {
	t.Helper()
	var b bytes.Buffer
	e := newEngine(t, observeRules, engine.Options{Logger: slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: level}))})
	for _, req := range requests {
		if err := e.Decide(t.Context(), req, new(engine.Verdict)); err != nil {
			t.Fatal(err)
		}
	}
	var lines []map[string]any
	for line := range strings.Lines(b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, m)
	}
	return lines
}

func TestLogOfRefusals(t *testing.T) {
	t.Parallel()
	evil := "\n{\"level\":\"fatal\"}\x1b[31m\u202e" + strings.Repeat("x", 100)
	refused := &engine.Request{Domain: "shop", Hits: 2, Descriptors: []engine.Descriptor{{Entries: []rule.Entry{{Key: "api", Value: evil}}}}}
	stranger := &engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{{Entries: []rule.Entry{{Key: evil, Value: "secret"}, {Key: "b", Value: "secret"}}}}}

	if lines := logged(t, slog.LevelInfo, refused, stranger); len(lines) != 0 {
		t.Errorf("at info: got %v, want silence", lines)
	}
	lines := logged(t, slog.LevelDebug, refused, stranger)
	if len(lines) != 2 {
		t.Fatalf("got %d lines, want 2: %v", len(lines), lines)
	}
	const cut = `"\n{\"level\":\"fatal\"}\x1b[31m\u202e`
	descriptor, _ := lines[0]["descriptor"].(string)
	if lines[0]["msg"] != "request refused" || lines[0]["limit"] != "per-client" || !strings.HasPrefix(descriptor, `"api"=`+cut) || len(descriptor) > 120 {
		t.Errorf("got %v, want the refusal with its value quoted and cut", lines[0])
	}
	keys, _ := lines[1]["keys"].(string)
	if lines[1]["msg"] != "descriptor unmatched" || !strings.HasPrefix(keys, cut) || !strings.HasSuffix(keys, `, "b"`) || strings.Contains(keys, "secret") {
		t.Errorf("got %v, want the keys, quoted and cut, and no values", lines[1])
	}

	many := make([]*engine.Request, 10_000)
	for i := range many {
		many[i] = refused
	}
	// Ten a second, and this takes less than three.
	if n := len(logged(t, slog.LevelDebug, many...)); n == 0 || n > 40 {
		t.Errorf("got %d lines of %d refusals, want a few", n, len(many))
	}
}
