package e2e_test

import "testing"

// A route may cost more than one hit: `hits_addend` of the route's own rate limits.
func TestCostOfARoute(t *testing.T) {
	t.Parallel()
	s := newStack(t, setup{
		rules: `
domain: e2e
descriptors:
  - {key: user, rate_limit: {algorithm: sliding_log, requests_per_unit: 10, unit: hour}}
`,
		routes: `
- match: {prefix: /export}
  route: {cluster: upstream}
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
      rate_limits:
        - actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
          hits_addend: {number: 4}
` + perUser,
	})
	s.wantCodes(t, []int{200, 200, 429}, "/export", "x-user: ann")
	// Two are left, since what does not fit whole costs nothing.
	s.wantCodes(t, []int{200, 200, 429}, "/", "x-user: ann")
}

// A route may give hits back: `is_negative_hits`. Never more than was spent.
func TestGivingBack(t *testing.T) {
	t.Parallel()
	s := newStack(t, setup{
		rules: `
domain: e2e
descriptors:
  - {key: user, rate_limit: {requests_per_unit: 3, unit: day}}
`,
		routes: `
- match: {prefix: /cancel}
  route: {cluster: upstream}
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
      rate_limits:
        - actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
          hits_addend: {number: 2, is_negative_hits: true}
` + perUser,
	})
	s.wantCodes(t, []int{200, 200, 200, 429}, "/", "x-user: ann")
	if got := s.get(t, "/cancel", "x-user: ann").code; got != 200 {
		t.Errorf("giving two back: got %d, want 200", got)
	}
	s.wantCodes(t, []int{200, 200, 429}, "/", "x-user: ann")
	// Of eighteen that are given back, three are all that were spent.
	s.wantCodes(t, []int{200, 200, 200, 200, 200, 200, 200, 200, 200}, "/cancel", "x-user: ann")
	s.wantCodes(t, []int{200, 200, 200, 429}, "/", "x-user: ann")
}

// A route may bring its own limit, which needs no number in the rules.
func TestLimitOfARoute(t *testing.T) {
	t.Parallel()
	s := newStack(t, setup{
		rules: `
domain: e2e
descriptors:
  - {key: user, rate_limit: {algorithm: sliding_log, requests_per_unit: 100, unit: hour}}
`,
		routes: `
- match: {prefix: /}
  route:
    cluster: upstream
    rate_limits:
      - actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
        limit: {rate_limit: {requests_per_unit: 2, unit: HOUR}}
`,
	})
	s.wantCodes(t, []int{200, 200, 429}, "/", "x-user: ann")
	wantHeaders(t, s.get(t, "/", "x-user: ann"), map[string]string{"X-Ratelimit-Limit": "2, 2;w=3600"})
}

// The cost of a request may be known only when its answer is: Envoy reports it when the stream is done, and it holds
// for the requests after. The request itself asks with 0 hits whether there is anything left.
func TestCostKnownWhenTheStreamIsDone(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, flags []string) {
		s := newStack(t, setup{
			flags: flags,
			rules: `
domain: e2e
descriptors:
  - key: user
    rate_limit: {name: tokens, requests_per_unit: 1000, unit: day, debt: 500}
`,
			routes: `
- match: {prefix: /}
  route: {cluster: upstream}
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
      rate_limits:
        - actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
          hits_addend: {number: 0}
        - actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
          hits_addend: {format: "%DYNAMIC_METADATA(llm:tokens)%"}
          apply_on_stream_done: true
`,
		})
		reported := func(n int) {
			t.Helper()
			// Nobody waits for the report; Envoy counts its answer as it does the others.
			s.eventually(t, "the report is answered", func() bool {
				return s.stat(t, "cluster.ratelimitd.upstream_rq_completed") >= n
			})
		}

		if got := s.get(t, "/?tokens=600", "x-user: ann"); got.code != 200 {
			t.Fatalf("first: got %d, want 200", got.code)
		}
		reported(2)
		left := s.get(t, "/?tokens=700", "x-user: ann")
		if left.code != 200 {
			t.Fatalf("400 are left: got %d, want 200", left.code)
		}
		wantHeaders(t, left, map[string]string{"X-Ratelimit-Remaining": "400"})
		reported(4)

		// 300 over: the report was booked although it did not fit, and the debt is paid off first.
		denied := s.get(t, "/?tokens=1", "x-user: ann")
		if denied.code != 429 {
			t.Fatalf("in debt: got %d, want 429", denied.code)
		}
		// 301 hits come back at 1000 a day.
		if got, wait := seconds(t, denied.header.Get("Retry-After")), 301*86400/1000; got < wait-60 || got > wait+31 {
			t.Errorf("got Retry-After %d, want about %d", got, wait)
		}
		if got := s.get(t, "/?tokens=1", "x-user: bob"); got.code != 200 {
			t.Errorf("another user: got %d, want 200", got.code)
		}
	})
}
