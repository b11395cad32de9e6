package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAllowThenDeny(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, flags []string) {
		s := newStack(t, setup{
			flags: flags,
			rules: `
domain: e2e
descriptors:
  - key: user
    rate_limit: {name: per-user, algorithm: sliding_log, requests_per_unit: 3, unit: hour}
`,
		})

		first := s.get(t, "/", "x-user: ann")
		if first.code != http.StatusOK || first.body != "from upstream" {
			t.Fatalf("got %d %q, want 200 from upstream", first.code, first.body)
		}
		wantHeaders(t, first, map[string]string{
			"X-Ratelimit-Limit":     `3, 3;w=3600;name="per-user"`,
			"X-Ratelimit-Remaining": "2",
			"Ratelimit-Policy":      `"per-user";q=3;w=3600`,
			"Retry-After":           "",
		})
		if got, want := first.header.Get("RateLimit"), `"per-user";r=2;t=3600`; got != want {
			t.Errorf("got RateLimit %s, want %s", got, want)
		}

		s.wantCodes(t, []int{200, 200, 429, 429}, "/", "x-user: ann")
		denied := s.get(t, "/", "x-user: ann")
		wantHeaders(t, denied, map[string]string{
			"X-Envoy-Ratelimited":   "true",
			"X-Ratelimit-Limit":     `3, 3;w=3600;name="per-user"`,
			"X-Ratelimit-Remaining": "0",
			"Ratelimit-Policy":      `"per-user";q=3;w=3600`,
			"Content-Type":          "application/problem+json",
		})
		// The oldest hit leaves the log an hour after it came; the spread adds up to 30 s to that wait.
		if got := seconds(t, denied.header.Get("Retry-After")); got < 3570 || got > 3630 {
			t.Errorf("got Retry-After %d, want an hour and its spread", got)
		}
		var problem struct {
			Type, Title string
			Status      int
			Violated    []string `json:"violated-policies"`
		}
		if err := json.Unmarshal([]byte(denied.body), &problem); err != nil {
			t.Fatalf("body %q: %v", denied.body, err)
		}
		if problem.Status != 429 || problem.Title == "" || !strings.HasSuffix(problem.Type, "#quota-exceeded") || !cmp.Equal(problem.Violated, []string{"per-user"}) {
			t.Errorf("got problem %+v, want quota-exceeded of per-user", problem)
		}

		if got := s.get(t, "/", "x-user: bob").code; got != 200 {
			t.Errorf("another user: got %d, want 200", got)
		}
		s.reached(t, 4)
	})
}

func TestTwoLimitsAllOrNothing(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, flags []string) {
		s := newStack(t, setup{
			flags: flags,
			rules: `
domain: e2e
descriptors:
  - key: user
    rate_limit: {name: user, algorithm: sliding_log, requests_per_unit: 2, unit: hour}
  - key: everyone
    rate_limit: {name: everyone, algorithm: sliding_log, requests_per_unit: 3, unit: hour}
`,
			routes: `
- match: {prefix: /}
  route:
    cluster: upstream
    rate_limits:
      - actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
      - actions: [{generic_key: {descriptor_key: everyone, descriptor_value: "yes"}}]
`,
		})
		// Ann's refused requests must not spend what everyone shares: the third of it is left for Bob.
		s.wantCodes(t, []int{200, 200, 429, 429, 429, 429}, "/", "x-user: ann")
		s.wantCodes(t, []int{200, 429, 429}, "/", "x-user: bob")
		denied := s.get(t, "/", "x-user: bob")
		wantHeaders(t, denied, map[string]string{"Ratelimit-Policy": `"everyone";q=3;w=3600`})
		s.reached(t, 3)
	})
}

func TestShadowAndUnlimited(t *testing.T) {
	t.Parallel()
	s := newStack(t, setup{
		rules: `
domain: e2e
descriptors:
  - key: path
    value: /new
    shadow_mode: true
    rate_limit: {name: "on-trial", algorithm: sliding_log, requests_per_unit: 1, unit: hour}
  - key: path
    value: /free
    rate_limit: {unlimited: true}
  - key: path
    rate_limit: {algorithm: sliding_log, requests_per_unit: 1, unit: hour}
`,
		routes: `
- match: {prefix: /}
  route:
    cluster: upstream
    rate_limits: [{actions: [{request_headers: {header_name: ":path", descriptor_key: path}}]}]
`,
	})
	for path, want := range map[string][]int{
		"/new":   {200, 200, 200},
		"/free":  {200, 200, 200},
		"/other": {200, 429, 429},
	} {
		s.wantCodes(t, want, path)
	}
	shadowed := s.get(t, "/new")
	wantHeaders(t, shadowed, map[string]string{"Ratelimit-Policy": "", "Retry-After": ""})
	s.reached(t, 8)
}

func TestWholeServiceInShadow(t *testing.T) {
	t.Parallel()
	s := newStack(t, setup{
		flags: []string{"--shadow"},
		rules: `
domain: e2e
descriptors:
  - {key: user, rate_limit: {name: user, algorithm: sliding_log, requests_per_unit: 1, unit: hour}}
`,
	})
	s.wantCodes(t, []int{200, 200, 200}, "/", "x-user: ann")
	wantHeaders(t, s.get(t, "/", "x-user: ann"), map[string]string{"Retry-After": "", "X-Ratelimit-Remaining": "0"})
}

func TestTiers(t *testing.T) {
	t.Parallel()
	s := newStack(t, setup{
		rules: `
domain: e2e
descriptors:
  - key: tier
    value: pro
    descriptors:
      - {key: user, rate_limit: {algorithm: sliding_log, requests_per_unit: 3, unit: hour}}
  - key: tier
    value: internal-*
    descriptors:
      - {key: user, rate_limit: {algorithm: sliding_log, requests_per_unit: 2, unit: hour}}
  - key: tier
    descriptors:
      - {key: user, rate_limit: {algorithm: sliding_log, requests_per_unit: 1, unit: hour}}
`,
		routes: `
- match: {prefix: /}
  route:
    cluster: upstream
    rate_limits:
      - actions:
          - request_headers: {header_name: x-tier, descriptor_key: tier}
          - request_headers: {header_name: x-user, descriptor_key: user}
`,
	})
	for tier, want := range map[string][]int{
		"pro":            {200, 200, 200, 429},
		"internal-batch": {200, 200, 429, 429},
		"free":           {200, 429, 429, 429},
	} {
		s.wantCodes(t, want, "/", "x-tier: "+tier, "x-user: ann")
	}
	// Envoy drops a descriptor with an entry missing, and asks nobody when none is left.
	s.wantCodes(t, []int{200, 200, 200}, "/", "x-user: ann")
}

// Envoy forwards header bytes as they come, and a service that refuses them refuses to decide: then one byte switches a
// limit off. Such values are decided like any other, each with a bucket of its own.
func TestInvalidUTF8IsNoBypass(t *testing.T) {
	t.Parallel()
	s := newStack(t, setup{
		rules: `
domain: e2e
descriptors:
  - {key: user, rate_limit: {algorithm: sliding_log, requests_per_unit: 2, unit: hour}}
  - {key: everyone, rate_limit: {algorithm: sliding_log, requests_per_unit: 5, unit: hour}}
`,
		routes: `
- match: {prefix: /}
  route:
    cluster: upstream
    rate_limits:
      - actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
      - actions: [{generic_key: {descriptor_key: everyone, descriptor_value: "yes"}}]
`,
	})
	for _, user := range []string{"\xff", "\xfe"} {
		s.wantCodes(t, []int{200, 200, 429}, "/", "x-user: "+user)
	}
	s.wantCodes(t, []int{200, 429}, "/", "x-user: \xfd\xc3\x28")
	if got := s.stat(t, "cluster.upstream.ratelimit.error"); got != 0 {
		t.Errorf("got %d errors at Envoy, want 0", got)
	}
}

// wantHeaders compares some headers; "" wants none.
func wantHeaders(t *testing.T, got answered, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if diff := cmp.Diff(value, strings.Join(got.header.Values(name), ", ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
