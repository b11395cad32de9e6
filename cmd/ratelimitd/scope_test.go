package main

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

const scopeRules = `
domain: shop
defaults: {algorithm: fixed_window}
descriptors:
  - {key: soft, rate_limit: {name: soft, unit: year, requests_per_unit: 100, scope: node}}
  - {key: hard, rate_limit: {name: hard, unit: year, requests_per_unit: 100}}
  - {key: strict, rate_limit: {name: strict, unit: year, requests_per_unit: 100, on_backend_failure: local_strict, local_fraction: 0.25}}
`

// A limit of node scope is each node's part of it, counted in its process alone: Redis hears nothing of it, and nobody is
// told that the process is degraded.
func TestNodeScopeAsksNobody(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var nodes []*server
	for range 2 { // which count each other
		s := startServer(t, scopeRules, "--redis-url", redis.URL(), "--redis-timeout", "2s", "--response-metadata")
		s.await(t, "key secret read from Redis")
		nodes = append(nodes, s)
	}
	for n, s := range nodes {
		redistest.Await(t, patience, "the number of nodes", func() bool { return s.metric(t, "ratelimitd_limiter_nodes") == 2 })
		client := clients(t, s, 1)[0]
		if got := grantedOf(t, client, 60, descriptor("soft", "x", -1)); got != 50 {
			t.Errorf("node %d of 2: got %d of 100 granted, want 50", n, got)
		}
		if a := callOnce(t.Context(), client, descriptor("soft", "y", -1)); a.origin != "local" {
			t.Errorf("node %d: got origin %q, want local", n, a.origin)
		}
		if got := s.metric(t, "ratelimitd_redisstore_request_duration_seconds_count{"); got != 0 {
			t.Errorf("node %d: got %v requests of Redis, want none", n, got)
		}
		if got := s.metric(t, "ratelimitd_limiter_degraded{") + s.metric(t, "ratelimitd_fallback_decisions_total{"); got != 0 {
			t.Errorf("node %d: said to be degraded", n)
		}
	}
	buckets := func() []string { return redis.Client().Keys(t.Context(), "rl1:{????}*").Val() }
	if got := buckets(); len(got) > 0 {
		t.Errorf("got buckets %v in Redis, want none", got)
	}

	// Together with a shared limit it is still all or nothing.
	client := clients(t, nodes[0], 1)[0]
	for range 10 {
		if a := callOnce(t.Context(), client, descriptor("hard", "x", -1), descriptor("soft", "x", -1)); a.err != nil || a.ok {
			t.Fatalf("got %+v, want it refused by the limit that is used up", a)
		}
	}
	redistest.Await(t, patience, "what a refused request had spent comes back", func() bool {
		return callOnce(t.Context(), client, descriptor("hard", "x", 0)).remaining == 100
	})
	if granted := grantedOf(t, client, 120, descriptor("hard", "x", -1)); granted != 100 {
		t.Errorf("the shared limit: got %d granted, want all 100", granted)
	}
	if got := buckets(); len(got) != 1 {
		t.Errorf("got buckets %v in Redis, want the one of the shared limit", got)
	}
}

// Without Redis the scope is divided by --nodes, and local_fraction says what a strict limit keeps to.
func TestScopesWithoutRedis(t *testing.T) {
	t.Parallel()
	nowhere := []string{"--redis-url", "redis://127.0.0.1:1"}
	for _, test := range []struct {
		name  string
		flags []string
		want  map[string]int
	}{
		{"embedded", nil, map[string]int{"soft": 100, "hard": 100, "strict": 100}},
		{"embedded, one of four", []string{"--nodes", "4"}, map[string]int{"soft": 25, "hard": 100, "strict": 100}},
		{"Redis away", nowhere, map[string]int{"soft": 100, "hard": 100, "strict": 25}},
		{"Redis away, one of two", append(nowhere, "--nodes", "2"), map[string]int{"soft": 50, "hard": 50, "strict": 12}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, scopeRules, test.flags...)
			client := clients(t, s, 1)[0]
			for key, want := range test.want {
				if got := grantedOf(t, client, 110, descriptor(key, "x", -1)); got != want {
					t.Errorf("%s: got %d granted of 110, want %d", key, got, want)
				}
			}
		})
	}
}
