package main

import (
	"context"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// C41: what Redis answers and what one node answers without it is the same, down to what remains: costs and looks (C04),
// two limits of which one refuses (C07), shadow rules (C16), unlimited ones (C23), values that look like others (C30),
// refunds, quotas, limits in the request and every algorithm.
func TestFallbackAgreesWithRedisC41(t *testing.T) {
	t.Parallel()
	const rules = `
domain: shop
descriptors:
  - {key: api, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: site, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: ip, value: 10.1.1.1, rate_limit: {unlimited: true, replaces: [{name: base}]}}
  - {key: path, rate_limit: {name: base, unit: year, requests_per_unit: 1}}
  - key: tenant
    rate_limit: {unit: year, requests_per_unit: 3}
    descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 3}}]
  - {key: gcra, rate_limit: {algorithm: gcra, unit: year, requests_per_unit: 4, burst: 2}}
  - {key: leaky, rate_limit: {algorithm: leaky_bucket, unit: year, requests_per_unit: 4}}
  - {key: fixed, rate_limit: {algorithm: fixed_window, unit: year, requests_per_unit: 4}}
  - {key: sliding, rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 4}}
  - {key: log, rate_limit: {algorithm: sliding_log, unit: year, requests_per_unit: 4}}
  - {key: model_a, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: model_b, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: none, rate_limit: {unit: year, requests_per_unit: 0}}
`
	var requests []string
	ask := func(times int, more ...string) {
		for range times {
			for _, r := range more {
				requests = append(requests, "shop | "+r)
			}
		}
	}
	ask(1, "[api=x]", "[api=x] | hits=0", "[api=x]h0", "[api=x]h0 | hits=5", "[api=x]h2 | hits=5", "[api=new]h0", "[api=x]h20", "[api=x]h-3", "[api=x]h5", "[api=x]h4")
	ask(3, "[user=u1] [site=s]", "[site=s] [user=u2]")
	ask(2, "[site=s]", "[user=u1]", "[user=u1] [none=x] [site=s]")
	ask(3, "[trial=a] [site=t]", "[site=t] [trial=a]")
	ask(3, "[ip=10.1.1.1] [path=/a]", "[ip=10.9.9.9] [path=/a]", "[path=/a] [ip=10.1.1.1]")
	ask(3, "[tenant=a_user_b]")
	ask(1, "[tenant=a, user=b]", `[tenant="{a}"]`, `[tenant="a\x00"]`, "[tenant=a]")
	for _, key := range []string{"gcra", "leaky", "fixed", "sliding", "log"} {
		ask(2, "["+key+"=x]", "["+key+"=x]h2", "["+key+"=x]h0", "["+key+"=x]h-1")
	}
	ask(1, "[model_a=x]")
	ask(2, "[model_a=x] [model_b=x]")
	ask(3, "[api=o]L2/year", "[other=o]L1/year")

	flags := []string{"--key-secret-file", fileWith(t, "sixteen bytes ok"), "--redis-timeout", "2s", "--response-metadata", "--override-max", "0"}
	with := startServer(t, rules, append(flags, "--redis-url", redistest.Start(t).URL())...)
	without := startServer(t, rules, append(flags, "--redis-url", "redis://127.0.0.1:1")...)
	answers := map[*server]rlsv3.RateLimitServiceClient{with: clients(t, with, 1)[0], without: clients(t, without, 1)[0]}
	for i, text := range requests {
		req, err := shorthand.ParseRequest(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := map[*server]*answer{}
		for s, client := range answers {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			resp, err := client.ShouldRateLimit(ctx, wireRequest(req))
			cancel()
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			got[s] = newAnswer(resp)
			origin, _ := got[s].Metadata["origin"].(string)
			if s == without && origin == "store" && !strings.Contains(text, "ip=10.1.1.1") { // which asks nobody
				t.Errorf("%s without Redis: got origin %q", text, origin)
			}
			got[s].Metadata, got[s].Headers, got[s].Body = nil, nil, ""
			for k := range got[s].Statuses {
				got[s].Statuses[k].Reset = "" // a moment later
			}
		}
		if diff := cmp.Diff(got[with], got[without]); diff != "" {
			t.Errorf("request %d, %s: -Redis +fallback:\n%s", i+1, text, diff)
		}
	}
}
