package rule

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func TestPolicies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		defaults, limit string
		want            bucket.Policy
	}{
		"nothing said":         {"", "", bucket.Policy{Refunds: true}},
		"a fraction":           {"", "on_backend_failure: local_strict, local_fraction: 0.25", bucket.Policy{OnFailure: bucket.LocalStrict, LocalFraction: 250_000, Refunds: true}},
		"the smallest":         {"", "on_backend_failure: local_strict, local_fraction: 0.000001", bucket.Policy{OnFailure: bucket.LocalStrict, LocalFraction: 1, Refunds: true}},
		"the whole":            {"", "on_backend_failure: local_strict, local_fraction: 1", bucket.Policy{OnFailure: bucket.LocalStrict, LocalFraction: 1_000_000, Refunds: true}},
		"zeros at the end":     {"", "on_backend_failure: local_strict, local_fraction: 0.3000000", bucket.Policy{OnFailure: bucket.LocalStrict, LocalFraction: 300_000, Refunds: true}},
		"of defaults":          {"on_backend_failure: local_strict, local_fraction: 0.5", "", bucket.Policy{OnFailure: bucket.LocalStrict, LocalFraction: 500_000, Refunds: true}},
		"not that of defaults": {"on_backend_failure: local_strict, local_fraction: 0.5", "local_fraction: 0.7", bucket.Policy{OnFailure: bucket.LocalStrict, LocalFraction: 700_000, Refunds: true}},
		"node scope":           {"", "scope: node", bucket.Policy{NodeScope: true, Refunds: true}},
		"shared scope":         {"", "scope: shared", bucket.Policy{Refunds: true}},
	} {
		s := load(t, "domain: d\ndefaults: {"+c.defaults+"}\ndescriptors:\n  - {key: k, rate_limit: {requests_per_unit: 5, unit: second, "+c.limit+"}}\n")
		c.want.Rule = "d.k"
		if diff := cmp.Diff(&c.want, s.Domains()[0].Rules()[0].Limits[0].Policy); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	s := load(t, "domain: d\ndefaults: {on_backend_failure: local_strict, local_fraction: 0.5}\ndescriptors: [{key: k}]")
	want := &bucket.Policy{OnFailure: bucket.LocalStrict, LocalFraction: 500_000, Refunds: true, Rule: "d"}
	if diff := cmp.Diff(want, s.Domains()[0].Defaults.Policy); diff != "" {
		t.Errorf("of a request's own limit (-want +got):\n%s", diff)
	}
}

func TestPartition(t *testing.T) {
	t.Parallel()
	s := load(t, `
domain: d
descriptors:
  - key: account
    partition: account
    rate_limit: {requests_per_unit: 5, unit: second}
    descriptors:
      - {key: path, partition: account, rate_limit: {requests_per_unit: 5, unit: second}}
      - {key: user, partition: user, rate_limit: {requests_per_unit: 5, unit: second}}
      - {key: none, rate_limit: {requests_per_unit: 5, unit: second}}
  - {key: ip, normalize: {ipv4: 24}, partition: ip, rate_limit: {requests_per_unit: 5, unit: second}}
  - {key: plan, any_of: [gold, silver], share_threshold: true, partition: plan, rate_limit: {requests_per_unit: 5, unit: second}}
`)
	name := func(key string) string { return "partition 1:d" + string(appendText(nil, key)) }
	for descriptor, want := range map[string][2]string{
		"account=a":           {name("account"), "a"},
		"account=a, path=/x":  {name("account"), "a"},
		"account=a, user=u":   {name("user"), "u"},
		"account=a, none=u":   {},
		"ip=198.51.100.7":     {name("ip"), "198.51.100.0/24"},
		"ip=::ffff:c633:6408": {name("ip"), "198.51.100.0/24"},
		"plan=gold":           {name("plan"), "any_of(gold,silver)"},
	} {
		es := entries(descriptor)
		partition, value, ok := s.Domains()[0].Match(es).Partition(es)
		if got := [2]string{partition, value}; got != want || ok != (want != [2]string{}) {
			t.Errorf("[%s]: got %q, %v, want %q", descriptor, got, ok, want)
		}
	}
}
