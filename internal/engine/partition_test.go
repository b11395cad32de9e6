package engine_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// TestPartitionKeepsAnAccountTogether checks that what decides a bucket's slot is an account's own, whatever the rule, the
// limit and the other values are; and that a request's own limit on such a rule stays with it.
func TestPartitionKeepsAnAccountTogether(t *testing.T) {
	t.Parallel()
	e := newEngine(t, `
domain: shop
lookups:
  - {from: api_key, to: account, values: {k-1: acme}}
descriptors:
  - key: account
    partition: account
    limits:
      - {name: burst, requests_per_unit: 5, unit: second}
      - {name: day, requests_per_unit: 5, unit: day}
    descriptors:
      - {key: path, value: "/a*", partition: account, rate_limit: {requests_per_unit: 5, unit: second}}
      - {key: api_key, partition: account, rate_limit: {requests_per_unit: 5, unit: second}}
      - {key: free, rate_limit: {requests_per_unit: 5, unit: second}}
`, engine.Options{})
	tags := func(request string) map[string]int {
		t.Helper()
		tags, keys := map[string]int{}, map[string]bool{}
		for _, d := range explain(t, e, request).Descriptors {
			for _, c := range d.Charges {
				tags[c.Key[:len("rl1:{tttt}")]]++
				keys[c.Key] = true
			}
		}
		n := 0
		for _, of := range tags {
			n += of
		}
		if len(keys) != n {
			t.Errorf("%s: got %d buckets for %d charges", request, len(keys), n)
		}
		return tags
	}
	const all = "shop | [account=acme] [account=acme, path=/a] [account=acme, path=/ab] [account=acme, path=/a]L7/HOUR [api_key=k-1]"
	acme := tags(all)
	if len(acme) != 1 {
		t.Errorf("%s: got slots %v, want one", all, acme)
	}
	zeta := tags("shop | [account=zeta]")
	for tag := range zeta {
		if acme[tag] != 0 || len(zeta) != 1 {
			t.Errorf("another account: got slots %v, want one of its own", zeta)
		}
	}
	if free := tags("shop | [account=acme, free=x] [account=acme, free=y]"); len(free) != 2 {
		t.Errorf("without partition: got slots %v, want one a bucket", free)
	}
}
