package redisstore_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := prometheus.NewPedanticRegistry()
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient, Registerer: r})
	c := charge(t, "a", bucket.Config{Hits: 10, Unit: bucket.Hour})
	for range 3 {
		take(t, s, c)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Take(ended, []store.Charge{c}, make([]store.Decision, 1)); err == nil {
		t.Error("an ended context: got no error, want one")
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = float64(m.GetHistogram().GetSampleCount()) + m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{
		"ratelimitd_redisstore_request_duration_seconds ok":      3,
		"ratelimitd_redisstore_request_duration_seconds timeout": 0,
		"ratelimitd_redisstore_request_duration_seconds error":   1,
		"ratelimitd_redisstore_requests_in_flight":               0,
		"ratelimitd_redisstore_lost_races_total":                 0,
		"ratelimitd_redisstore_lost_hits_total":                  0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s, err := redisstore.New(redisstore.Options{URL: server.URL(), Registerer: r}); err == nil {
		_ = s.Close()
		t.Error("registered twice: got no error, want one")
	}
}

// tracer counts the spans that are started.
type tracer struct {
	noop.Tracer
	spans atomic.Int64
}

func (t *tracer) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	t.spans.Add(1)
	return t.Tracer.Start(ctx, name, o...)
}

// recording is a span that records.
type recording struct{ noop.Span }

func (recording) IsRecording() bool { return true }

func TestSpans(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var spans tracer
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient, Tracer: &spans})
	c := []store.Charge{charge(t, "a", bucket.Config{Hits: 10, Unit: bucket.Hour})}
	out := make([]store.Decision, 1)
	for _, tt := range []struct {
		name string
		ctx  context.Context
		want int64
	}{
		{"no parent", t.Context(), 0},
		{"a parent that does not record", trace.ContextWithSpan(t.Context(), noop.Span{}), 0},
		{"a parent that records", trace.ContextWithSpan(t.Context(), recording{}), 1},
	} {
		if err := s.Take(tt.ctx, c, out); err != nil {
			t.Fatal(err)
		}
		if got := spans.spans.Swap(0); got != tt.want {
			t.Errorf("%s: got %d spans, want %d", tt.name, got, tt.want)
		}
	}
}
