package rule

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestMatchByMoreThanValue(t *testing.T) {
	t.Parallel()
	const rules = `
domain: shop
descriptors:
  - key: path
  - {key: path, regex: "/v[0-9]+/.*"}
  - {key: path, regex: "/.*/admin"}
  - {key: path, prefix: /v1/}
  - {key: path, prefix: /v1/users/}
  - {key: path, suffix: .png}
  - {key: path, any_of: [/v1/a, /v1/b]}
  - {key: path, value: /v1/b/c}
  - key: ip
  - {key: ip, cidr: 10.0.0.0/8}
  - {key: ip, cidr: [10.1.0.0/16, "2001:db8::/32", 203.0.113.9]}
  - {key: ip, value: 10.1.1.1}
  - {key: ip, any_of: [10.1.1.2, "::FFFF:a01:101"]}
  - {key: ip, prefix: "10.1."}
  - {key: ip, prefix: "10"}
  - {key: ip, regex: "192[.]0[.]2[.][0-9]+"}
  - {key: only, regex: "(?i)ab+"}
  - {key: only, cidr: "::/0"}
`
	for descriptor, want := range map[string]string{
		"path=/v1/a":             "path_any_of(/v1/a,/v1/b)",
		"path=/v1/b/c":           "path_/v1/b/c",
		"path=/v1/b/d":           "path_/v1/*",
		"path=/v1/users/7":       "path_/v1/users/*",
		"path=/v1/x.png":         "path_/v1/*",
		"path=/x.png":            "path_*.png",
		"path=/v2/x":             "path_regex(/v[0-9]+/.*)",
		"path=/v2/x/admin":       "path_regex(/v[0-9]+/.*)", // both match: the first in the file
		"path=/w/admin":          "path_regex(/.*/admin)",
		"path=/w/admin/more":     "path", // a regex matches from start to end
		"path=x/v2/":             "path",
		"path=/v2/\n\xff":        "path_regex(/v[0-9]+/.*)", // no byte of a stranger's takes a value out of .*
		"path=":                  "path",
		"ip=10.1.1.1":            "ip_10.1.1.1",
		"ip=10.1.1.2":            "ip_any_of(10.1.1.2,::FFFF:a01:101)",
		"ip=::FFFF:a01:101":      "ip_any_of(10.1.1.2,::FFFF:a01:101)",
		"ip=::ffff:a01:101":      "ip_cidr(10.1.0.0/16,203.0.113.9/32,2001:db8::/32)", // an address, but not this text
		"ip=::ffff:10.1.7.7":     "ip_cidr(10.1.0.0/16,203.0.113.9/32,2001:db8::/32)",
		"ip=10.2.7.7":            "ip_cidr(10.0.0.0/8)",
		"ip=10.1.7.7":            "ip_cidr(10.1.0.0/16,203.0.113.9/32,2001:db8::/32)", // the longest network, before any prefix
		"ip=2001:0DB8:0::7":      "ip_cidr(10.1.0.0/16,203.0.113.9/32,2001:db8::/32)",
		"ip=2001:db8::7%eth0":    "ip_cidr(10.1.0.0/16,203.0.113.9/32,2001:db8::/32)",
		"ip=203.0.113.9":         "ip_cidr(10.1.0.0/16,203.0.113.9/32,2001:db8::/32)",
		"ip=203.0.113.8":         "ip",
		"ip=10.1.7.7:80":         "ip_10.1.*", // no address
		"ip=10.1.7":              "ip_10.1.*",
		"ip=10.2.7.7, path=x":    "none",
		"ip=100.1.1.1":           "ip_10*",
		"ip=192.0.2.55":          "ip_regex(192[.]0[.]2[.][0-9]+)",
		"ip=not an address":      "ip",
		"only=ABB":               "only_regex((?i)ab+)",
		"only=::7":               "only_cidr(::/0)",
		"only=198.51.100.7":      "none", // IPv4 is not IPv6
		"only=x":                 "none",
		"other=/v1/a":            "none",
		"path_any_of(/v1/a=/v1)": "none",
	} {
		for _, profile := range []string{"native", "envoy"} {
			want := want
			if profile == "envoy" { // there the first pattern in the file wins
				switch descriptor {
				case "path=/v1/users/7":
					want = "path_/v1/*"
				}
			}
			if got := matched(load(t, rules+"profile: "+profile), descriptor); got != want {
				t.Errorf("%s: [%s] reaches %s, want %s", profile, descriptor, got, want)
			}
		}
	}
}

// TestWhatARegexSees checks the cut that bounds what a value costs.
func TestWhatARegexSees(t *testing.T) {
	t.Parallel()
	s := load(t, `
domain: d
descriptors:
  - {key: a, regex: "a+"}
  - {key: b, regex: ".*b"}
`)
	long := strings.Repeat("a", maxRegexInput)
	for descriptor, want := range map[Entry]string{
		{"a", long}:           "a_regex(a+)",
		{"a", long + "x"}:     "a_regex(a+)", // what follows the first 4096 bytes is not looked at
		{"a", long[1:] + "x"}: "none",
		{"b", long[1:] + "b"}: "b_regex(.*b)",
		{"b", long + "b"}:     "none",
	} {
		got := "none"
		if r := s.Domains()[0].Match([]Entry{descriptor}); r != nil {
			got = r.Path
		}
		if got != want {
			t.Errorf("[%s=%d bytes] reaches %s, want %s", descriptor.Key, len(descriptor.Value), got, want)
		}
	}
}

func TestStepsTellHowAValueMatched(t *testing.T) {
	t.Parallel()
	s := load(t, `
domain: d
descriptors:
  - {key: a, any_of: [x]}
  - {key: a, cidr: 10.0.0.0/8}
  - {key: a, prefix: p}
  - {key: a, regex: r+}
`)
	for value, want := range map[string]StepKind{"x": StepAnyOf, "10.0.0.1": StepCIDR, "pq": StepWildcard, "rr": StepRegex} {
		steps := s.Domains()[0].Steps([]Entry{{"a", value}})
		if len(steps) != 1 || steps[0].Kind != want {
			t.Errorf("[a=%s]: got %+v, want one step, %s", value, steps, want)
		}
	}
}

// TestEachValueHasItsBucket checks that matching by more than a value shares no bucket, unless told to.
func TestEachValueHasItsBucket(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"any_of: [10.0.0.1, 10.0.0.2]", "cidr: 10.0.0.0/8", "prefix: '10.'", "regex: '10[.].*'"} {
		for _, profile := range []string{"native", "envoy"} {
			rules := fmt.Sprintf("domain: d\nprofile: %s\ndescriptors:\n  - {key: ip, %s, rate_limit: {requests_per_unit: 5, unit: second}}\n", profile, by)
			one, two := []Entry{{"ip", "10.0.0.1"}}, []Entry{{"ip", "10.0.0.2"}}
			s := load(t, rules)
			if bucketOfDescriptor(t, s, one) == bucketOfDescriptor(t, s, two) {
				t.Errorf("%s, %s: two values share a bucket", profile, by)
			}
			if r := s.Domains()[0].Match(one); r.MetricPath(one) != r.FullPath() || strings.Contains(r.FullPath(), "10.0.0.3") {
				t.Errorf("%s, %s: a metric is called %q, want %q", profile, by, r.MetricPath(one), r.FullPath())
			}
			s = load(t, strings.Replace(rules, "key: ip,", "key: ip, share_threshold: true,", 1))
			if bucketOfDescriptor(t, s, one) != bucketOfDescriptor(t, s, two) {
				t.Errorf("%s, %s: with share_threshold two values have a bucket each", profile, by)
			}
		}
	}
}

// TestIdentityOfLists checks that what means the same keeps its buckets, and what means something else does not.
func TestIdentityOfLists(t *testing.T) {
	t.Parallel()
	identity := func(by string) string {
		s := load(t, "domain: d\ndescriptors:\n  - {key: k, "+by+", rate_limit: {requests_per_unit: 5, unit: second}}\n")
		return s.Domains()[0].Rules()[0].Limits[0].Identity
	}
	many := func(last string) string {
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, "v-%d, ", i)
		}
		return "any_of: [" + b.String() + last + "]"
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"any_of: [a, b]", "any_of: [b, a]", true},
		{"any_of: [a, b]", "any_of: [a, b, c]", false},
		{"any_of: [a, b]", "any_of: ['a,b']", false},
		{many("f"), many("f"), true},
		{many("f"), many("g"), false},
		{"any_of: a", "value: a", false},
		{"cidr: [10.0.0.0/8, '::1']", "cidr: ['0:0::1/128', '::ffff:10.0.0.0/104']", true},
		{"cidr: 10.0.0.0/8", "cidr: 10.0.0.0/9", false},
		{"prefix: a", "value: a*", true},
		{"suffix: a", "value: '*a'", true},
		{"regex: a", "value: a", false},
		{"regex: a", "any_of: a", false},
		{"any_of: [a, b]", "any_of: [a, b], share_threshold: true", false},
	} {
		if got := identity(c.a) == identity(c.b); got != c.same {
			t.Errorf("%s and %s: got one identity %v, want %v", c.a, c.b, got, c.same)
		}
	}
	if a, b := newValueMatch(StepAnyOf, []string{"a", "b", "c", "d"}, nil).name, newValueMatch(StepAnyOf, []string{"a", "b", "c", "e"}, nil).name; a == b {
		t.Errorf("two lists are both called %s", a)
	}
	if name := newValueMatch(StepRegex, []string{strings.Repeat("\x00", maxPatternBytes)}, nil).name; len(name) > 300 {
		t.Errorf("a name of %d bytes: want a label of a metric, not more", len(name))
	}
}

func TestMatchByMoreThanValueDoesNotAllocate(t *testing.T) {
	for _, profile := range []string{"native", "envoy"} {
		d := load(t, `
domain: d
profile: `+profile+`
descriptors:
  - {key: k, any_of: [a, b], rate_limit: {requests_per_unit: 5, unit: second}}
  - {key: k, cidr: [10.0.0.0/8, "2001:db8::/32"], rate_limit: {requests_per_unit: 5, unit: second}}
  - {key: k, prefix: /api/, rate_limit: {requests_per_unit: 5, unit: second}}
  - {key: k, regex: "/v[0-9]+/.*", rate_limit: {requests_per_unit: 5, unit: second}}
`).Domains()[0]
		for _, value := range []string{"b", "10.7.7.7", "2001:db8:1::7", "/api/x", "/v7/x", "none of them"} {
			es := []Entry{{"k", value}}
			values := make([]string, 0, 4)
			match := func() {
				if r := d.Match(es); r != nil {
					values = r.KeyValues(values[:0], es)
					r.MetricPath(es)
				}
			}
			most := 0.0
			if raceEnabled && (value == "/v7/x" || value == "none of them") {
				most = 2 // the regex's scratch is pooled, and the race detector empties pools at random
			}
			if n := testing.AllocsPerRun(100, match); n > most {
				t.Errorf("%s, %s: got %v allocations a match, want %v", profile, value, n, most)
			}
		}
	}
}

// TestCostlyRegexes matches what costs most within the bounds.
func TestCostlyRegexes(t *testing.T) {
	long := strings.Repeat("a", 10<<10)
	for _, c := range []struct {
		name, rules string
		most        time.Duration
	}{
		{"(a+)+b", "  - {key: k, regex: '(a+)+b'}\n", 20 * time.Millisecond},
		{"1,000 instructions", "  - {key: k, regex: '(?:(?:a?){450}a)*b'}\n", 2 * time.Second},
		{"40 patterns", func() string {
			var b strings.Builder
			for i := range 40 {
				fmt.Fprintf(&b, "  - {key: k, regex: '/api/v%d/[a-z]+'}\n", i)
			}
			return b.String()
		}(), 20 * time.Millisecond},
	} {
		d := load(t, "domain: d\ndescriptors:\n"+c.rules).Domains()[0]
		least := time.Hour // of several: other processes only ever add
		for range 5 {
			start := time.Now()
			d.Match([]Entry{{"k", long}})
			least = min(least, time.Since(start))
		}
		t.Logf("%s: %v", c.name, least)
		if least > c.most {
			t.Errorf("%s: a match took %v, want at most %v", c.name, least, c.most)
		}
	}
}

// BenchmarkMatchSiblings matches one value among n siblings of each kind. Only regexes cost more the more there are.
func BenchmarkMatchSiblings(b *testing.B) {
	for _, c := range []struct {
		name, format, value string
		ns                  []int
	}{
		{"any_of", "  - {key: k, any_of: [a-%[1]d, b-%[1]d]}\n", "b-7", []int{10, 10_000}},
		{"cidr", "  - {key: k, cidr: ['2001:db8:%[1]x::/48', 'fd00:%[1]x::/32']}\n", "2001:db8:7::1", []int{10, 10_000}},
		{"prefix", "  - {key: k, prefix: /api/v%d/}\n", "/api/v7/things", []int{10, 10_000}},
		{"regex", "  - {key: k, regex: '/v%d/[a-z]+'}\n", "/v9/things", []int{10, 40}},
	} {
		for _, n := range c.ns {
			var rules strings.Builder
			rules.WriteString("domain: d\ndescriptors:\n")
			for i := range n {
				fmt.Fprintf(&rules, c.format, i)
			}
			d := load(b, rules.String()).Domains()[0]
			es := []Entry{{"k", c.value}}
			if d.Match(es) == nil {
				b.Fatalf("%s: %s matches nothing", c.name, c.value)
			}
			b.Run(fmt.Sprintf("%s/siblings=%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					d.Match(es)
				}
			})
		}
	}
}
