package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

const modeRules = `
domain: shop
defaults: {algorithm: fixed_window}
descriptors:
  - key: open
    rate_limit: {name: open, unit: year, requests_per_unit: 100}
  - key: strict
    rate_limit: {name: strict, unit: year, requests_per_unit: 100, on_backend_failure: local_strict}
  - key: closed
    rate_limit: {name: closed, unit: year, requests_per_unit: 100, on_backend_failure: fail_closed}
`

// C70: a master that has become a replica refuses to write. Limits of all failure modes, side by side in one process,
// each do what they say; when the master is one again, it has been charged for exactly what was granted, and nobody is
// denied for what was true before.
func TestOutageModesSideBySide(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	// A refusal comes at once; with the budget of 5 ms a call could be late as well, and count for its caller or not.
	s := startServer(t, modeRules, "--redis-url", redis.URL(), "--redis-timeout", "2s", "--response-metadata", "--nodes", "2")
	s.await(t, "key secret read from Redis")
	client := clients(t, s, 1)[0]
	ask := func(times int, descriptors ...*ratelimitv3.RateLimitDescriptor) (granted int, last seen) {
		t.Helper()
		for range times {
			last = callOnce(t.Context(), client, descriptors...)
			if last.err != nil {
				t.Fatalf("a call failed: %v", last.err)
			}
			if last.ok {
				granted++
			}
		}
		return granted, last
	}
	do := func(args ...any) {
		t.Helper()
		if err := redis.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	// Redis may have been slow for the first calls; what is asked below it has not been asked for before.
	redistest.Await(t, time.Minute, "a closed breaker", func() bool {
		_, a := ask(1, descriptor("open", "before", 0))
		return a.origin == "store" && s.metric(t, "ratelimitd_breaker_state{") == 0
	})

	do("replicaof", "127.0.0.1", "1")
	redistest.Await(t, patience, "an open breaker", func() bool {
		ask(1, descriptor("closed", "meanwhile", -1))
		return s.metric(t, "ratelimitd_breaker_state{") == 1
	})
	open, strict, closed := descriptor("open", "x", -1), descriptor("strict", "x", -1), descriptor("closed", "x", -1)
	for _, both := range [][]*ratelimitv3.RateLimitDescriptor{{open, closed}, {closed, open}, {strict, closed, open}} {
		if granted, _ := ask(3, both...); granted != 0 {
			t.Errorf("a request of several modes, one of them closed: got %d granted, want none", granted)
		}
	}
	for _, want := range []struct {
		descriptor *ratelimitv3.RateLimitDescriptor
		granted    int
		origin     string
	}{
		{open, 50, "local"},  // one of two nodes; what was refused above has spent nothing
		{strict, 5, "local"}, // a tenth of that
		{closed, 0, "unavailable"},
	} {
		key := want.descriptor.Entries[0].Key
		granted, last := ask(60, want.descriptor)
		if granted != want.granted || last.ok || last.origin != want.origin {
			t.Errorf("%s without Redis: got %d of 60 granted, the last %+v; want %d, origin %s", key, granted, last, want.granted, want.origin)
		}
		mode := map[string]string{"open": "fail_open", "strict": "local_strict", "closed": "fail_closed"}[key]
		if got := s.metric(t, `ratelimitd_limiter_degraded{mode="`+mode+`"}`); got != 1 {
			t.Errorf("%s: got degraded %v, want 1", mode, got)
		}
		if got := s.metric(t, `ratelimitd_fallback_decisions_total{mode="`+mode+`",rule="shop.`+key+`"}`); got < 60 {
			t.Errorf("%s: got %v fallback decisions, want 60 at least", mode, got)
		}
	}

	do("replicaof", "no", "one")
	back := time.Now()
	redistest.Await(t, time.Minute, "decisions by Redis", func() bool {
		_, a := ask(1, descriptor("closed", "after", 0))
		return a.origin == "store"
	})
	t.Logf("Redis was used again %v after it was a master", time.Since(back))
	for _, want := range []struct {
		descriptor *ratelimitv3.RateLimitDescriptor
		granted    int
	}{{open, 50}, {strict, 95}, {closed, 100}} {
		if granted, last := ask(110, want.descriptor); granted != want.granted {
			t.Errorf("%s afterwards: got %d granted more, want %d, 100 in all; the last %+v", want.descriptor.Entries[0].Key, granted, want.granted, last)
		}
	}
}

// C68: 90 a minute, three nodes, Redis down, 1,000 calls a second: each node admits its third, and says that it is
// degraded. When Redis is back nobody has a stale denial.
func TestOutageNodesShareTheLimit(t *testing.T) {
	t.Parallel()
	const rules = `
domain: shop
descriptors:
  - {key: bucket, rate_limit: {name: bucket, unit: minute, requests_per_unit: 90}}
  - {key: window, rate_limit: {name: window, algorithm: fixed_window, unit: year, requests_per_unit: 90}}
  - {key: closed, rate_limit: {name: closed, unit: minute, requests_per_unit: 90, on_backend_failure: fail_closed}}
`
	outage, rate := 3*time.Second, 1000
	if raceEnabled {
		rate = 200
	}
	if soak {
		outage = 10 * time.Minute
	}
	redis := redistest.Start(t)
	var nodes []*server
	for range 3 {
		s := startServer(t, rules, "--redis-url", redis.URL(), "--redis-timeout", "2s", "--response-metadata", "--nodes", "3")
		s.await(t, "key secret read from Redis")
		nodes = append(nodes, s)
	}
	redis.Stop()
	var all sync.WaitGroup
	for n, s := range nodes {
		all.Go(func() {
			began := time.Now()
			answers := load(t, clients(t, s, 2), rate/3, outage, func(i int) *ratelimitv3.RateLimitDescriptor {
				return descriptor([]string{"bucket", "window", "closed"}[i%3], "x", -1)
			})
			took := time.Since(began)
			granted := map[string]int{}
			for _, a := range answers {
				if a.err != nil {
					t.Errorf("node %d: a call failed: %v", n, a.err)
					return
				}
				if a.ok {
					granted[a.key]++
				}
				if want := map[bool]string{true: "unavailable", false: "local"}[a.key == "closed"]; a.origin != want {
					t.Errorf("node %d, %s: got origin %q, want %q", n, a.key, a.origin, want)
					return
				}
			}
			// A bucket holds a burst of 30 and gets half a hit a second.
			low, high := 30, 31+int(took.Seconds()/2)
			if got := granted["bucket"]; got < low || got > high {
				t.Errorf("node %d: got %d of %d granted by a bucket of 90 a minute in %v, want a third, %d to %d", n, got, len(answers), took, low, high)
			}
			if granted["window"] != 30 || granted["closed"] != 0 {
				t.Errorf("node %d: got %v granted, want 30 by the window, none by what fails closed", n, granted)
			}
			t.Logf("node %d, %v: granted %v of %s", n, took, granted, tally(answers))
		})
	}
	all.Wait()

	redis.Restart() // empty: what was counted in it is gone, so every limit is whole
	total := 0
	for n, s := range nodes {
		client := clients(t, s, 1)[0]
		redistest.Await(t, time.Minute, fmt.Sprintf("decisions by Redis on node %d", n), func() bool {
			return callOnce(t.Context(), client, descriptor("closed", "y", 0)).origin == "store"
		})
		total += grantedOf(t, client, 100, descriptor("window", "y", -1))
	}
	if total != 90 {
		t.Errorf("with Redis back: got %d granted by three nodes, want 90", total)
	}
}

// grantedOf asks so often and counts what was granted.
func grantedOf(t *testing.T, client rlsv3.RateLimitServiceClient, times int, d *ratelimitv3.RateLimitDescriptor) int {
	t.Helper()
	granted := 0
	for range times {
		a := callOnce(t.Context(), client, d)
		if a.err != nil {
			t.Fatalf("a call failed: %v", a.err)
		}
		if a.ok {
			granted++
		}
	}
	return granted
}
