package transport

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// TestBlocked checks that a request on the blocklist is told nothing but that it is refused; only the proxy hears why.
func TestBlocked(t *testing.T) {
	t.Parallel()
	block := &rule.Block{Key: "remote_address", Match: "cidr(203.0.113.0/24)", Reason: "scraper, ticket 4711"}
	for _, envoy := range []bool{false, true} {
		v := engine.Verdict{
			Over: true, Envoy: envoy, Nearest: -1, Blocked: block,
			Statuses: []engine.Status{{Over: true, RetryAfter: bucket.Never}, {}},
		}
		o := Options{ResponseMetadata: true, Problem: true, RetryJitter: true, Headers: Headers{IETF: true, Legacy: LegacyGitHub, Reference: true}}
		headers, body := answerOf(t, o, v)
		wantHeaders, wantBody := map[string]string{"content-type": problemContentType}, blockedProblem
		if envoy {
			wantHeaders, wantBody = map[string]string{}, ""
		}
		if diff := cmp.Diff(wantHeaders, headers); diff != "" {
			t.Errorf("envoy %v: headers (-want +got):\n%s", envoy, diff)
		}
		if body != wantBody {
			t.Errorf("envoy %v: got body %q, want %q", envoy, body, wantBody)
		}
		c := &call{req: engine.Request{Domain: "shop", Descriptors: make([]engine.Descriptor, 2)}, verdict: v}
		m := unmarshalled(t, newAnswerer(o).answer(c, noon))
		if s := m.Statuses[0]; s.Code != m.OverallCode || s.CurrentLimit != nil || s.DurationUntilReset != nil || m.Statuses[1].Code == s.Code {
			t.Errorf("envoy %v: got statuses %v, want the first one over and bare, the second one OK", envoy, m.Statuses)
		}
		want := map[string]any{"key": "remote_address", "match": "cidr(203.0.113.0/24)", "reason": "scraper, ticket 4711"}
		if diff := cmp.Diff(want, m.DynamicMetadata.AsMap()["blocked"]); diff != "" {
			t.Errorf("envoy %v: metadata (-want +got):\n%s", envoy, diff)
		}
	}
}
