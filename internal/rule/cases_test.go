package rule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Cases from the field, as far as they concern rules alone: faults that users of rate limiters reported, each with its right answer.

// bucketOf names the bucket of a descriptor's first limit, by everything that the key of a store is made of.
func bucketOfDescriptor(t testing.TB, s *Snapshot, descriptor []Entry) string {
	t.Helper()
	r := s.Domains()[0].Match(descriptor)
	if r == nil || len(r.Limits) == 0 {
		t.Fatalf("%q reaches no limit", descriptor)
	}
	return fmt.Sprintf("%q %q", r.Limits[0].Identity, r.KeyValues(nil, descriptor))
}

// codes lists the lints of a file.
func codes(t testing.TB, o Options, yaml string) []string {
	t.Helper()
	_, warnings, err := Load([]File{{"rules.yaml", []byte(yaml)}}, o)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, w := range warnings {
		if w.File == "" || w.Line == 0 || w.Col == 0 || w.Hint == "" {
			t.Errorf("got warning %+v, want a place and a hint", w)
		}
		out = append(out, w.Code)
	}
	return out
}

func TestC23UnlimitedMayReplace(t *testing.T) {
	t.Parallel()
	s := load(t, `
domain: shop
descriptors:
  - key: ip
    value: "10.1.1.1"
    rate_limit: {unlimited: true, replaces: [{name: base}]}
  - key: path
    rate_limit: {name: base, unit: hour, requests_per_unit: 1}
`)
	r := s.Domains()[0].Match(entries("ip=10.1.1.1"))
	if !r.Unlimited || len(r.Limits) != 0 || !slices.Equal(r.Replaces, []string{"base"}) {
		t.Errorf("got unlimited %v with %d limits replacing %q, want it unlimited, without limits, replacing base", r.Unlimited, len(r.Limits), r.Replaces)
	}
	if got := matched(s, "ip=10.9.9.9"); got != "none" {
		t.Errorf("got %s for another address, want none", got)
	}
	if got := s.Domains()[0].Match(entries("path=/a")).Limits[0].Name; got != "base" {
		t.Errorf("got name %q, want base", got)
	}
}

func TestC24DanglingReplacesIsReported(t *testing.T) {
	t.Parallel()
	_, warnings, err := Load([]File{{"rules.yaml", []byte(`domain: shop
descriptors:
  - key: ip
    rate_limit: {unlimited: true, replaces: [{name: ghost}]}
`)}}, Options{})
	if err != nil || len(warnings) != 1 || warnings[0].Code != LintDanglingReplaces || warnings[0].File != "rules.yaml" || warnings[0].Line != 4 {
		t.Errorf("got %v, %v, want one %s at rules.yaml:4", warnings, err, LintDanglingReplaces)
	}
}

func TestC30TextOfARequestChoosesNoOtherBucket(t *testing.T) {
	t.Parallel()
	const rules = `
domain: shop
descriptors:
  - key: tenant
    rate_limit: {unit: hour, requests_per_unit: 3}
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 3}
      - key: "1"
        rate_limit: {unit: hour, requests_per_unit: 3}
  - key: tenant_user
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: "any*"
    rate_limit: {unit: hour, requests_per_unit: 3}
`
	long := strings.Repeat("x", 8<<10)
	apart := [][]Entry{
		{{"tenant", "a_user_b"}},
		{{"tenant", "a"}, {"user", "b"}},
		{{"tenant", "a_user"}, {"user", "b"}},
		{{"tenant", "a"}, {"user", "user_b"}},
		{{"tenant", "x_1"}},
		{{"tenant", "x"}, {"1", ""}},
		{{"tenant_user", "b"}},
		{{"tenant", "user_b"}},
		{{"anyone", "b"}},
		{{"any", "one_b"}},
		{{"any", "b"}},
		{{"tenant", "{a}"}}, {{"tenant", "a:b"}}, {{"tenant", "a|b"}}, {{"tenant", "a\nb"}}, {{"tenant", "a\x00b"}}, {{"tenant", "\xff"}}, {{"tenant", "\xfe"}},
		{{"tenant", long}}, {{"tenant", long + "x"}},
	}
	for _, profile := range []Profile{Native, Envoy} {
		s, _, err := Load([]File{{"rules.yaml", []byte(rules)}}, Options{DefaultProfile: profile})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string][]Entry{}
		for _, d := range apart {
			b := bucketOfDescriptor(t, s, d)
			if first, taken := seen[b]; taken {
				t.Errorf("%s: %.40q and %.40q share the bucket %.80s", profile, first, d, b)
			}
			seen[b] = d
		}
	}
	for _, pair := range [][2]string{
		{"domain: a\ndescriptors: [{key: b_c, rate_limit: {unit: hour, requests_per_unit: 3}}]", "domain: a_b\ndescriptors: [{key: c, rate_limit: {unit: hour, requests_per_unit: 3}}]"},
		{"domain: a\ndescriptors: [{key: b, value: c, rate_limit: {unit: hour, requests_per_unit: 3}}]", "domain: a\ndescriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 3}}]"},
		{"domain: a\ndescriptors: [{key: b, value: 'c*', rate_limit: {unit: hour, requests_per_unit: 3}}]", "domain: a\ndescriptors: [{key: b, value: 'c*', share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 3}}]"},
		{"domain: a\ndescriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 3}}]", "domain: a\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 3}}]"},
		{"domain: a\ndescriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 3}}]", "domain: a\ndescriptors: [{key: b, rate_limit: {unit: hour, unit_multiplier: 2, requests_per_unit: 3}}]"},
		{"domain: a\ndescriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 3}}]", "domain: a\ndescriptors: [{key: b, rate_limit: {name: hour, unit: hour, requests_per_unit: 3}}]"},
		{"domain: a\ndescriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 3}}]", "domain: a\ndescriptors: [{key: b, rate_limit: {algorithm: fixed_window, unit: hour, requests_per_unit: 3}}]"},
	} {
		a, b := load(t, pair[0]).Domains()[0].Rules()[0].Limits[0], load(t, pair[1]).Domains()[0].Rules()[0].Limits[0]
		if a.Identity == b.Identity {
			t.Errorf("%s\nand\n%s\nhave one identity %q", pair[0], pair[1], a.Identity)
		}
	}
}

// TestIdentityStays lists what a reload may change without giving anybody a fresh bucket.
func TestIdentityStays(t *testing.T) {
	t.Parallel()
	of := func(yaml string) string { return load(t, yaml).Domains()[0].Rules()[0].Limits[0].Identity }
	const before = "domain: a\ndescriptors: [{key: b, rate_limit: {name: n, algorithm: token_bucket, unit: hour, requests_per_unit: 3}}]"
	for _, after := range []string{
		"domain: a\ndescriptors: [{key: b, rate_limit: {name: n, algorithm: gcra, unit: hour, requests_per_unit: 3}}]",
		"domain: a\ndescriptors: [{key: b, rate_limit: {name: n, unit: day, unit_multiplier: 2, requests_per_unit: 9, burst: 20}}]",
		"domain: a\ndescriptors: [{key: b, shadow_mode: true, limits: [{name: n, unit: hour, requests_per_unit: 3, debt: 5}]}]",
	} {
		if of(after) != of(before) {
			t.Errorf("%s\nhas identity %q, want that of\n%s: %q", after, of(after), before, of(before))
		}
	}
}

func TestOverrideIdentities(t *testing.T) {
	t.Parallel()
	d := load(t, "domain: shop\ndescriptors: [{key: api, rate_limit: {unit: hour, requests_per_unit: 3}}]").Domains()[0]
	r := d.Rules()[0]
	es := entries("api=a")
	seen := map[string]string{r.Limits[0].Identity: "the rule's own"}
	for name, id := range map[string]string{
		"an hour":            r.OverrideIdentity(0, r.Limits[0].Unit, 1),
		"two hours":          r.OverrideIdentity(0, r.Limits[0].Unit, 2),
		"a day":              r.OverrideIdentity(0, r.Limits[0].Unit+1, 1),
		"an hour, window":    r.OverrideIdentity(3, r.Limits[0].Unit, 1),
		"no rule, an hour":   d.OverrideIdentity(es, 0, r.Limits[0].Unit, 1),
		"no rule, a day":     d.OverrideIdentity(es, 0, r.Limits[0].Unit+1, 1),
		"no rule, two keys":  d.OverrideIdentity(entries("api=a, b=c"), 0, r.Limits[0].Unit, 1),
		"no rule, other key": d.OverrideIdentity(entries("apib=a"), 0, r.Limits[0].Unit, 1),
	} {
		if other, taken := seen[id]; taken {
			t.Errorf("%s and %s have one identity %q", name, other, id)
		}
		seen[id] = name
	}
}

func TestC32TheNarrowerPatternWins(t *testing.T) {
	t.Parallel()
	const rules = `
domain: shop
descriptors:
  - {key: path, value: "/api/*", rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: path, value: "/api/admin/*", rate_limit: {unit: minute, requests_per_unit: 2}}
`
	if got := load(t, rules).Domains()[0].Match(entries("path=/api/admin/x")).Limits[0].Requests; got != 2 {
		t.Errorf("native: got the limit of %d, want that of 2", got)
	}
	if got := load(t, "profile: envoy"+rules).Domains()[0].Match(entries("path=/api/admin/x")).Limits[0].Requests; got != 100 {
		t.Errorf("envoy: got the limit of %d, want that of 100, the first in the file", got)
	}
}

func TestC34PatternsBelowTheFirstLevel(t *testing.T) {
	t.Parallel()
	s := load(t, `
domain: shop
descriptors:
  - key: tenant
    descriptors:
      - {key: path, value: "/f/*", rate_limit: {unit: hour, requests_per_unit: 2}}
`)
	for descriptor, want := range map[string]string{"tenant=t, path=/f/1": "tenant.path_/f/*", "tenant=t, path=/g": "none", "tenant=t": "none"} {
		if got := matched(s, descriptor); got != want {
			t.Errorf("[%s] reaches %s, want %s", descriptor, got, want)
		}
	}
}

func TestC36NoWayBackFromTheSpecificNode(t *testing.T) {
	t.Parallel()
	const rules = `
domain: shop
descriptors:
  - key: plan
    value: gold
  - key: plan
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 3}
`
	for _, o := range []Options{{DefaultProfile: Native}, {DefaultProfile: Envoy}} {
		s, _, err := Load([]File{{"rules.yaml", []byte(rules)}}, o)
		if err != nil {
			t.Fatal(err)
		}
		for descriptor, want := range map[string]string{"plan=silver, user=u": "plan.user", "plan=gold, user=u": "none"} {
			if got := matched(s, descriptor); got != want {
				t.Errorf("%s: [%s] reaches %s, want %s", o.DefaultProfile, descriptor, got, want)
			}
		}
		if got := codes(t, o, rules); !slices.Equal(got, []string{LintHiddenChildren}) {
			t.Errorf("%s: got warnings %q, want %s", o.DefaultProfile, got, LintHiddenChildren)
		}
	}
}

func TestC38SeveralLimitsOnOneDescriptor(t *testing.T) {
	t.Parallel()
	s := load(t, `
domain: shop
descriptors:
  - key: account
    limits: [{unit: second, requests_per_unit: 2}, {unit: day, requests_per_unit: 5}]
`)
	limits := s.Domains()[0].Match(entries("account=a")).Limits
	if len(limits) != 2 || limits[0].Requests != 2 || limits[1].Requests != 5 || limits[0].Identity == limits[1].Identity || s.LimitCount() != 2 {
		t.Errorf("got %d limits %+v, want 2 a second and 5 a day, apart", len(limits), limits)
	}
	for _, profile := range []string{"native", "envoy"} {
		_, _, err := Load([]File{{"rules.yaml", []byte("profile: " + profile + `
domain: shop
descriptors:
  - {key: account, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: account, rate_limit: {unit: day, requests_per_unit: 5}}
`)}}, Options{})
		if err == nil || !strings.Contains(err.Error(), "rules.yaml:5:5") || !strings.Contains(err.Error(), "rules.yaml:4:5") {
			t.Errorf("%s: got %v, want both places", profile, err)
		}
	}
}

func TestC39OneAddressManySpellings(t *testing.T) {
	t.Parallel()
	s := load(t, `
domain: shop
descriptors:
  - {key: ip, normalize: {ipv6: 64}, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: net, normalize: {ipv4: 24}, rate_limit: {unit: hour, requests_per_unit: 2}}
`)
	for _, group := range [][]string{ // one bucket each
		{"2001:db8::1", "2001:0DB8:0:0:0:0:0:2", "2001:db8::ffff:1", "2001:db8:0:0:1::9", "2001:db8::1%eth0"},
		{"2001:db8:0:1::1"},
		{"198.51.100.7", "::ffff:198.51.100.7", "::FFFF:c633:6407"},
		{"198.51.100.8", "::ffff:198.51.100.8"},
		{"64:ff9b::c633:6407", "64:ff9b::198.51.100.7", "0064:FF9B:0::C633:6407"},
		{"64:ff9b::c633:6408"},
		{"fe80::1%eth0", "fe80::2%eth1", "fe80::"},
		{"not an address"}, {""}, {"198.51.100.7:80"}, {"198.51.100.07"}, {"198.51.100.0/24"},
	} {
		first := bucketOfDescriptor(t, s, []Entry{{"ip", group[0]}})
		for _, other := range group[1:] {
			if got := bucketOfDescriptor(t, s, []Entry{{"ip", other}}); got != first {
				t.Errorf("%s has bucket %s, want that of %s: %s", other, got, group[0], first)
			}
		}
	}
	var all []string
	for _, a := range []string{"2001:db8::1", "2001:db8:0:1::1", "198.51.100.7", "198.51.100.8", "64:ff9b::c633:6407", "64:ff9b::c633:6408", "fe80::1", "x", ""} {
		all = append(all, bucketOfDescriptor(t, s, []Entry{{"ip", a}}))
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 9 {
		t.Errorf("got %d buckets, want 9 apart", n)
	}
	if a, b := bucketOfDescriptor(t, s, entries("net=198.51.100.7")), bucketOfDescriptor(t, s, entries("net=::ffff:198.51.100.250")); a != b {
		t.Errorf("got %s and %s, want one bucket a /24", a, b)
	}
	if a, b := bucketOfDescriptor(t, s, entries("net=64:ff9b::c633:6407")), bucketOfDescriptor(t, s, entries("net=64:ff9b::c633:6501")); a == b {
		t.Errorf("got %s for two networks behind NAT64, want two buckets", a)
	}
}

func TestC43MissingRequestsPerUnitIsAnError(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{DefaultProfile: Native}, {DefaultProfile: Envoy}} {
		_, _, err := Load([]File{{"rules.yaml", []byte("domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: hour}\n")}}, o)
		want := "rules.yaml:4:17: descriptors[0].rate_limit.requests_per_unit: missing; write 0 to refuse everything"
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", o.DefaultProfile, err, want)
		}
		s, _, err := Load([]File{{"rules.yaml", []byte("domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: hour, requests_per_unit: 0}\n")}}, o)
		if err != nil || s.Domains()[0].Rules()[0].Limits[0].Bucket.Config().Hits != 0 {
			t.Errorf("%s: got %v, want an explicit 0 to load", o.DefaultProfile, err)
		}
	}
}

func TestC44NothingIsDroppedSilently(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{DefaultProfile: Native}, {DefaultProfile: Envoy}} {
		for yaml, want := range map[string]string{
			"domain: d\ndescriptors: [{key: a}]\ndescriptors: [{key: b}]\n": "rules.yaml:3:1: descriptors: key 'descriptors' is given twice, first on line 2",
			"domain: d\n---\ndomain: e\n":                                   "rules.yaml:3:1: a second YAML document: want one document a file, since the reference service ignores the others",
		} {
			if _, _, err := Load([]File{{"rules.yaml", []byte(yaml)}}, o); err == nil || err.Error() != want {
				t.Errorf("%s: %q: got %v, want %s", o.DefaultProfile, yaml, err, want)
			}
		}
		if _, _, err := Load([]File{{"rules.yaml", []byte("---\ndomain: d\n---\n# no more\n")}}, o); err != nil {
			t.Errorf("%s: got %v for an empty second document, want it to load", o.DefaultProfile, err)
		}
	}
}

func TestC45EveryMistakeAtOnceWithItsPlace(t *testing.T) {
	t.Parallel()
	_, _, err := Load([]File{{"b.yaml", []byte(`domain: b
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unti: 5}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: -1}}
  - {key: c, rate_limit: {unit: hour, requests_per_unit: 2.5}}
  - {key: d, rate_limit: {unit: fortnight, requests_per_unit: 1}}
`)}, {"a.yaml", []byte("domain: a\ndescriptors: [{}]\n")}}, Options{})
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatalf("got %v, want Errors", err)
	}
	var got []string
	for _, e := range errs {
		got = append(got, fmt.Sprintf("%s:%d:%d %s", e.File, e.Line, e.Col, e.Path))
	}
	want := []string{
		"a.yaml:2:15 descriptors[0].key",
		"b.yaml:3:26 descriptors[0].rate_limit.requests_per_unit",
		"b.yaml:3:39 descriptors[0].rate_limit.requests_per_unti",
		"b.yaml:4:58 descriptors[1].rate_limit.requests_per_unit",
		"b.yaml:5:58 descriptors[2].rate_limit.requests_per_unit",
		"b.yaml:6:33 descriptors[3].rate_limit.unit",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLimitsHaveNamesForPeople(t *testing.T) {
	t.Parallel()
	s := load(t, `
domain: shop
descriptors:
  - {key: a, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: b, rate_limit: {name: login, unit: second, requests_per_unit: 1}}
  - {key: c, rate_limit: {name: login, unit: second, requests_per_unit: 1}}
  - {key: login, rate_limit: {unit: second, requests_per_unit: 1}}
  - key: e
    value: x
    limits:
      - {unit: second, requests_per_unit: 1}
      - {unit: minute, unit_multiplier: 5, requests_per_unit: 1}
      - {unit: second, algorithm: fixed_window, requests_per_unit: 1}
      - {name: day, unit: day, requests_per_unit: 1}
`)
	var got []string
	for _, r := range s.Domains()[0].Rules() {
		for _, l := range r.Limits {
			got = append(got, l.Policy.Rule)
		}
	}
	want := []string{"shop.a", "shop.login", "shop.c.login", "shop.login.second", "shop.e_x", "shop.e_x.5minute", "shop.e_x.second", "shop.day"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
