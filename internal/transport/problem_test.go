package transport

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
)

func TestProblem(t *testing.T) {
	t.Parallel()
	login := engine.Status{
		Over: true, HasLimit: true, Name: "login", Requests: 5, Unit: bucket.Minute, Multiplier: 1,
		Quota: 5, Window: time.Minute, RetryAfter: time.Second,
	}
	with := func(change func(*engine.Status)) *engine.Status {
		s := login
		change(&s)
		return &s
	}
	const (
		exceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
		reduced  = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	)
	tests := map[string]struct {
		status *engine.Status
		want   map[string]any
	}{
		"a named limit": {&login, map[string]any{
			"type": exceeded, "title": "Quota Exceeded", "status": 429.0,
			"detail": "Allowed are 5 requests per minute.", "violated-policies": []any{"login"},
		}},
		"of several units": {with(func(s *engine.Status) { s.Multiplier = 5 }), map[string]any{
			"type": exceeded, "title": "Quota Exceeded", "status": 429.0,
			"detail": "Allowed are 5 requests per 5 minutes.", "violated-policies": []any{"login"},
		}},
		"an odd name": {with(func(s *engine.Status) { s.Name = "a\"\\\n</script>é" }), map[string]any{
			"type": exceeded, "title": "Quota Exceeded", "status": 429.0,
			"detail": "Allowed are 5 requests per minute.", "violated-policies": []any{"a\"\\_</script>__"},
		}},
		"no store to ask": {with(func(s *engine.Status) { s.Unpaid = true }), map[string]any{
			"type": reduced, "title": "Temporary Reduced Capacity", "status": 429.0, "violated-policies": []any{"login"},
		}},
		"refused unasked": {nil, map[string]any{"type": exceeded, "title": "Quota Exceeded", "status": 429.0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := engine.Verdict{Over: true, Nearest: -1}
			if tt.status != nil {
				v.Statuses, v.Nearest = []engine.Status{*tt.status}, 0
			}
			headers, body := answerOf(t, Options{Problem: true}, v)
			var got map[string]any
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("body %q: %v", body, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if got, want := headers["content-type"], "application/problem+json"; got != want {
				t.Errorf("content-type: got %q, want %q", got, want)
			}
		})
	}
}

func TestProblemOnlyOnDenials(t *testing.T) {
	t.Parallel()
	s := []engine.Status{{Over: true, HasLimit: true, Name: "login", Unit: bucket.Minute}}
	tests := map[string]struct {
		problem bool
		verdict engine.Verdict
	}{
		"switched off":  {false, engine.Verdict{Over: true, Statuses: s}},
		"allowed":       {true, engine.Verdict{Statuses: s}},
		"--shadow":      {true, engine.Verdict{WouldDeny: true, Statuses: s}},
		"profile envoy": {true, engine.Verdict{Over: true, Envoy: true, Statuses: s}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			headers, body := answerOf(t, Options{Problem: tt.problem}, tt.verdict)
			if ct, ok := headers["content-type"]; ok || body != "" {
				t.Errorf("got content-type %q and body %q, want none", ct, body)
			}
		})
	}
}
