package rule

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// loadEnvoy loads fixtures as the reference service would.
func loadEnvoy(t testing.TB, o Options, names ...string) *Snapshot {
	t.Helper()
	o.DefaultProfile = Envoy
	var fs []File
	for _, name := range names {
		fs = append(fs, files(t, filepath.Join("testdata", "envoy", name))...)
	}
	s, _, err := Load(fs, o)
	if err != nil {
		t.Fatalf("load %v:\n%v", names, err)
	}
	return s
}

// describeRule says what a rule limits, as the tables below write it.
func describeRule(r *Rule, es []Entry) string {
	if r == nil {
		return "none"
	}
	s := "no limit"
	switch {
	case r.Unlimited:
		s = "unlimited"
	case len(r.Limits) > 0:
		l := r.Limits[0]
		s = fmt.Sprintf("%d/%s", l.Requests, l.Unit)
		if l.Name != "" {
			s += " " + l.Name
		}
	}
	if r.Shadow {
		s += " shadow"
	}
	if r.Quota {
		s += " quota"
	}
	return s + " " + r.MetricPath(es)
}

// TestEnvoyConformance is what the reference service's own tests expect of its rule files, by way of our own files.
func TestEnvoyConformance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fixture string
		merge   bool
		want    map[string]string // by descriptor
	}{
		{"basic.yaml", false, map[string]string{
			"":                               "none",
			"key1=value1":                    "none",
			"key1=anything":                  "none",
			"key1=value1, subkey1=something": "5/second test-domain.key1_value1.subkey1",
			"key1=value1, subkey1=subvalue1": "10/second test-domain.key1_value1.subkey1_subvalue1",
			"key1=value1, other=x":           "none",
			"key1=value1, subkey1=x, more=x": "none",
			"key2=something":                 "20/minute test-domain.key2",
			"key2=value2":                    "30/minute test-domain.key2_value2",
			"key2=value2, subkey=x":          "none",
			"key2=value3":                    "no limit test-domain.key2_value3",
			"key3=x":                         "1/hour test-domain.key3",
			"Key3=x":                         "none",
			"key4=x":                         "1/day key4_rate_limit test-domain.key4",
			"key5=value5":                    "15/day test-domain.key5_value5",
			"key5=other":                     "none",
			"key5=value5, subkey5=subvalue":  "none",
			"key5=value5, subkey5=subvalue5": "25/day test-domain.key5_value5.subkey5_subvalue5",
			"key6=x":                         "unlimited test-domain.key6",
			"key7=a":                         "70/minute test-domain.key7_a",
			"key7=b":                         "70/minute test-domain.key7_b",
			"key7=":                          "70/minute test-domain.key7",
			"key8=x":                         "8/week test-domain.key8",
			"key9=x":                         "9/month test-domain.key9",
			"10=15":                          "0/year test-domain.10_15",
			"empty=x":                        "3/hour test-domain.empty",
			"nothing=x":                      "no limit test-domain.nothing",
		}},
		{"shadow.yaml", false, map[string]string{
			"key1=value1":                    "1/second shadow test-domain.key1_value1",
			"key1=value1, subkey1=x":         "5/second test-domain.key1_value1.subkey1",
			"key1=value1, subkey1=subvalue1": "10/second shadow test-domain.key1_value1.subkey1_subvalue1",
			"key2=x":                         "20/minute test-domain.key2",
			"key2=x, subkey2=y":              "2/minute shadow test-domain.key2.subkey2",
			"key3=x":                         "3/minute quota test-domain.key3",
		}},
		{"wildcard.yaml", false, map[string]string{
			"wild=foo1":                  "20/minute test-domain.wild_foo*",
			"wild=foo2":                  "20/minute test-domain.wild_foo*",
			"wild=foo":                   "20/minute test-domain.wild_foo*",
			"wild=bar":                   "none",
			"noWild=foo":                 "30/minute test-domain.noWild_foo",
			"noWild=foo1":                "none",
			"noVal=foo1":                 "40/minute test-domain.noVal",
			"midWild=barab":              "50/minute test-domain.midWild_bar*b",
			"midWild=bar123b":            "50/minute test-domain.midWild_bar*b",
			"midWild=barb":               "50/minute test-domain.midWild_bar*b",
			"midWild=bara":               "none",
			"midWild=xbarb":              "none",
			"multiWild=foo123bar456baz":  "60/minute test-domain.multiWild_foo*bar*baz",
			"multiWild=foobarbaz":        "60/minute test-domain.multiWild_foo*bar*baz",
			"multiWild=foobaz":           "none",
			"multiWild=foobar":           "none",
			"multiWild=barfoobaz":        "none",
			"nestedWild=val1, wild=goo1": "70/minute test-domain.nestedWild_val1.wild_goo*",
			"nestedWild=val2, wild=goo1": "none",
			"order=abc":                  "1/minute test-domain.order_a*",
			"exact=x*":                   "1/minute test-domain.exact_x*",
			"exact=xz":                   "1/minute test-domain.exact_x*",
			"exact=xy":                   "2/minute test-domain.exact_xy",
			"exact=y":                    "3/minute test-domain.exact",
			"foobar=anything":            "80/minute test-domain.foo*",
			"fo=anything":                "none",
			"route/ns/r/rule/0/match/0/*=route/ns/r/rule/0/match/0/*": "90/minute test-domain.route/ns/r/rule/0/match/0/*_route/ns/r/rule/0/match/0/*",
			"route/ns/r/rule/1/match/0/*=route/ns/r/rule/1/match/0/*": "91/minute test-domain.route/ns/r/rule/1/match/0/*_route/ns/r/rule/1/match/0/*",
		}},
		{"metrics.yaml", false, map[string]string{
			"plain=a, leaf=b":        "1/hour d.plain.leaf",
			"detailed=a, leaf=b":     "1/hour d.detailed_a.leaf_b",
			"detailed=, leaf=b":      "1/hour d.detailed.leaf_b",
			"detailedTop=a, leaf=b":  "1/hour d.detailedTop.leaf",
			"top=a, leaf=b":          "1/hour d.top_a.leaf",
			"top=, leaf=b":           "1/hour d.top.leaf",
			"both=a, leaf=b":         "1/hour d.both_a.leaf_b",
			"both=a, leaf=":          "1/hour d.both_a.leaf",
			"exact=v, leaf=b":        "1/hour d.exact_v.leaf_b",
			"wild=foo1, leaf=b":      "1/hour d.wild_foo1.leaf",
			"keptWild=foo1, leaf=b":  "1/hour d.keptWild_foo*.leaf_b",
			"win=a, leaf=b":          "1/hour d.win_a.leaf_b",
			"route=api, method=GET":  "1/hour d.route_api.method_*",
			"route=, method=GET":     "1/hour d.route.method_*",
			"detailed=a b|c, leaf=:": "1/hour d.detailed_a b|c.leaf_:",
		}},
		{"share_threshold.yaml", false, map[string]string{
			"files=files/a.pdf":         "10/hour d.files_files/*",
			"own=own/a.pdf":             "10/hour d.own_own/*",
			"metric=m1":                 "10/hour d.metric_m*",
			"detail=d1":                 "10/hour d.detail_d*",
			"test=test1":                "50/minute d.test_test1",
			"test=test2":                "100/minute d.test_test*",
			"middle=abz":                "10/hour d.middle_a*z",
			"multi=a1m2z":               "10/hour d.multi_a*m*z",
			"nestedBoth=a1, sub=b1":     "10/hour d.nestedBoth_a*.sub_b*",
			"nestedPlain=x, sub=b1":     "10/hour d.nestedPlain.sub_b*",
			"nestedPlain=x, sub=absent": "none",
		}},
	} {
		s := loadEnvoy(t, Options{MergeDomains: c.merge}, c.fixture)
		for descriptor, want := range c.want {
			es := entries(descriptor)
			if got := describeRule(s.Domains()[0].Match(es), es); got != want {
				t.Errorf("%s [%s]: got %s, want %s", c.fixture, descriptor, got, want)
			}
		}
		if got := s.Domain("unknown"); got != nil {
			t.Errorf("%s: got domain %q for an unknown name, want nil", c.fixture, got.Name)
		}
	}
}

// TestEnvoyWildcardsShareTheirRule checks that all values of a pattern are one limit, with a bucket each unless they share a threshold.
func TestEnvoyWildcardsShareTheirRule(t *testing.T) {
	t.Parallel()
	wild := loadEnvoy(t, Options{}, "wildcard.yaml").Domain("test-domain")
	if a, b := wild.Match(entries("wild=foo1")), wild.Match(entries("wild=foo2")); a != b || a == nil {
		t.Errorf("foo1 and foo2 reach %v and %v, want one rule", a, b)
	}
	d := loadEnvoy(t, Options{}, "share_threshold.yaml").Domain("d")
	for _, c := range []struct {
		a, b   string
		shared bool
	}{
		{"files=files/a.pdf", "files=files/b.csv", true},
		{"own=own/a.pdf", "own=own/b.csv", false},
		{"off=o1", "off=o2", false},
		{"middle=a1z", "middle=a2z", true},
		{"multi=a1m1z", "multi=a2m2z", true},
		{"nestedBoth=a1, sub=b1", "nestedBoth=a2, sub=b2", true},
		{"nestedOuter=a1, sub=b1", "nestedOuter=a2, sub=b1", true},
		{"nestedOuter=a1, sub=b1", "nestedOuter=a1, sub=b2", false},
		{"nestedInner=a1, sub=b1", "nestedInner=a1, sub=b2", true},
		{"nestedInner=a1, sub=b1", "nestedInner=a2, sub=b1", false},
		{"nestedPlain=x, sub=b1", "nestedPlain=x, sub=b2", true},
		{"nestedPlain=x, sub=b1", "nestedPlain=y, sub=b1", false},
	} {
		ra, rb := d.Match(entries(c.a)), d.Match(entries(c.b))
		if ra == nil || ra != rb {
			t.Errorf("[%s] and [%s] reach %v and %v, want one rule", c.a, c.b, ra, rb)
			continue
		}
		a, b := ra.KeyValues(nil, entries(c.a)), rb.KeyValues(nil, entries(c.b))
		if got := cmp.Equal(a, b); got != c.shared {
			t.Errorf("[%s] and [%s] are told apart by %q and %q: got shared %v, want %v", c.a, c.b, a, b, got, c.shared)
		}
	}
}

func TestEnvoyMergesDomains(t *testing.T) {
	t.Parallel()
	s := loadEnvoy(t, Options{MergeDomains: true}, "merge_key1.yaml", "merge_key2.yaml")
	for descriptor, want := range map[string]string{
		"key1=value1": "10/minute test-domain.key1_value1",
		"key2=value2": "20/minute test-domain.key2_value2",
	} {
		es := entries(descriptor)
		if got := describeRule(s.Domain("test-domain").Match(es), es); got != want {
			t.Errorf("[%s]: got %s, want %s", descriptor, got, want)
		}
	}
}

func TestEnvoyMetadata(t *testing.T) {
	t.Parallel()
	d := loadEnvoy(t, Options{}, "metadata.yaml").Domain("test-domain")
	if got := d.Match(entries("plain=x")).Metadata; got != nil {
		t.Errorf("got metadata %v, want nil", got)
	}
	want := map[string]any{
		"owner": "team-a", "level": 3.0, "ratio": 0.5, "on_call": true, "none": nil, "since": "2024-01-01",
		"nested": map[string]any{"deep": map[string]any{"list": []any{1.0, "two", map[string]any{"three": 3.0}}}},
		"true":   "why", // y is a boolean in YAML 1.1
	}
	if diff := cmp.Diff(want, d.Match(entries("rich=x")).Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

// TestEnvoyRefusals checks that files the reference refuses are refused with its own words, after our place.
func TestEnvoyRefusals(t *testing.T) {
	t.Parallel()
	const good = "domain: test-domain\ndescriptors:\n  - {key: key1, value: value1, rate_limit: {unit: minute, requests_per_unit: 10}}\n"
	node := func(yaml string) string { return "domain: test-domain\ndescriptors:\n  - " + yaml + "\n" }
	for _, c := range []struct {
		name  string
		files []string // a.yaml, b.yaml …
		merge bool
		want  string // what the error begins with
	}{
		{"duplicate domain", []string{good, "domain: test-domain\ndescriptors:\n"}, false,
			"b.yaml:1:9: domain: duplicate domain 'test-domain' in config file"},
		{"merge of one key twice", []string{good, good}, true,
			"b.yaml:3:5: descriptors[0]: duplicate descriptor composite key 'test-domain.key1_value1'"},
		{"empty domain", []string{"descriptors:\n  - key: a\n"}, false, "a.yaml:1:1: domain: config file cannot have empty domain"},
		{"empty file", []string{""}, false, "a.yaml:1:1: config file cannot have empty domain"},
		{"empty key", []string{node("{value: x}")}, false, "a.yaml:3:5: descriptors[0].key: descriptor has empty key"},
		{"duplicate key", []string{good + "  - {key: key1, value: value1}\n"}, false,
			"a.yaml:4:5: descriptors[1]: duplicate descriptor composite key 'test-domain.key1_value1'"},
		{"bad unit", []string{node("{key: a, rate_limit: {unit: foo, requests_per_unit: 5}}")}, false,
			"a.yaml:3:33: descriptors[0].rate_limit.unit: invalid rate limit unit 'foo'"},
		{"replaces self", []string{node("{key: a, rate_limit: {name: a, unit: day, requests_per_unit: 5, replaces: [{name: a}]}}")}, false,
			"a.yaml:3:87: descriptors[0].rate_limit.replaces[0].name: replaces should not contain name of same descriptor"},
		{"replaces empty", []string{node("{key: a, rate_limit: {name: a, unit: day, requests_per_unit: 5, replaces: [{name: ''}]}}")}, false,
			"a.yaml:3:80: descriptors[0].rate_limit.replaces[0]: should not have an empty replaces entry"},
		{"bad yaml", []string{"'''"}, false, "a.yaml:1:4: error loading config file: yaml: line 1: found unexpected end of stream"},
		{"misspelled key", []string{node("{key: a, ratelimit: {unit: day}}")}, false,
			"a.yaml:3:14: descriptors[0].ratelimit: config error, unknown key 'ratelimit'"},
		{"misspelled key 2", []string{node("{key: a, rate_limit: {unit: day, requestsperunit: 5}}")}, false,
			"a.yaml:3:26: descriptors[0].rate_limit.requests_per_unit: missing; write 0 to refuse everything\n" +
				"a.yaml:3:38: descriptors[0].rate_limit.requestsperunit: config error, unknown key 'requestsperunit'"},
		{"non-string key", []string{node("{key: a, 0.25: b}")}, false, "a.yaml:3:14: descriptors[0]: config error, key is not of type string: 0.25"},
		{"list of scalars", []string{node("a")}, false, "a.yaml:3:5: descriptors[0]: config error, yaml file contains list of type other than map: a"},
		{"unlimited with unit", []string{node("{key: a, rate_limit: {unlimited: true, unit: day}}")}, false,
			"a.yaml:3:50: descriptors[0].rate_limit.unit: should not specify rate limit unit when unlimited"},
		{"share_threshold without pattern", []string{node("{key: k, value: v, share_threshold: true}")}, false,
			"a.yaml:3:41: descriptors[0].share_threshold: share_threshold can only be used with wildcard values (containing '*'), but found key 'k_v'"},
		{"fraction", []string{node("{key: a, rate_limit: {unit: day, requests_per_unit: 2.5}}")}, false,
			"a.yaml:3:57: descriptors[0].rate_limit.requests_per_unit: error checking config"},
		{"negative", []string{node("{key: a, rate_limit: {unit: day, requests_per_unit: -1}}")}, false,
			"a.yaml:3:57: descriptors[0].rate_limit.requests_per_unit: error loading config file: yaml: unmarshal errors: line 3: cannot unmarshal !!int `-1` into uint32"},
		{"metadata", []string{node("{key: a, metadata: {b: .nan}}")}, false, "a.yaml:3:28: descriptors[0].metadata.b: error parsing metadata: "},
	} {
		var fs []File
		for i, data := range c.files {
			fs = append(fs, File{string(rune('a'+i)) + ".yaml", []byte(data)})
		}
		_, _, err := Load(fs, Options{DefaultProfile: Envoy, MergeDomains: c.merge})
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant\n%s", c.name, err, c.want)
		}
	}
}

// TestEnvoyAcceptsWhatDoesNoHarm lists what the reference loads and we load too, in profile envoy with a warning where it has no effect.
func TestEnvoyAcceptsWhatDoesNoHarm(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		"domain: d\nunit: nonsense\ndescriptors: [{key: a}]\n":                                                            LintIgnoredKey,
		"domain: d\ndescriptors: [{key: a, domain: x}]\n":                                                                 LintIgnoredKey,
		"domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1, key: b}}]\n":                     LintIgnoredKey,
		"domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, unit: foo}}]\n":                                  LintNoEffect,
		"domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, requests_per_unit: 4}}]\n":                       LintNoEffect,
		"domain: d\ndescriptors: [{key: a, value: ~}]\n":                                                                  "",
		"domain: d\ndescriptors: [{key: a, value: 2024-01-01}, {key: a, value: 1.5}, {key: a, value: yes}]":               "",
		"domain: d\ndescriptors: [{key: 15, shadow_mode: n}]\n":                                                           "",
		"domain: d\ndescriptors: [{key: a, rate_limit: {name: \"Any Name, at all\", unit: dAY, requests_per_unit: 0}}]\n": "",
		"domain: d\ndescriptors:\n": LintEmptyDomain,
	} {
		_, warnings, err := Load([]File{{"a.yaml", []byte(yaml)}}, Options{DefaultProfile: Envoy})
		if err != nil {
			t.Errorf("%s: got %v, want it to load", yaml, err)
			continue
		}
		var codes []string
		for _, w := range warnings {
			codes = append(codes, w.Code)
		}
		if got := strings.Join(codes, " "); got != want {
			t.Errorf("%s: got warnings %q, want %q", yaml, got, want)
		}
	}
}

// TestEnvoyLimitsAreFixedWindows checks what the profile sets.
func TestEnvoyLimitsAreFixedWindows(t *testing.T) {
	t.Parallel()
	d := loadEnvoy(t, Options{}, "basic.yaml").Domain("test-domain")
	if d.Profile != Envoy || d.Defaults.Algorithm != bucket.FixedWindow {
		t.Errorf("got profile %s and default %s, want envoy and fixed_window", d.Profile, d.Defaults.Algorithm)
	}
	c := d.Match(entries("key3=x")).Limits[0].Bucket.Config()
	if c.Algorithm != bucket.FixedWindow || !c.Envoy || c.Hits != 1 || c.Unit != bucket.Hour {
		t.Errorf("got %+v, want a fixed window of 1 an hour in the reference's manner", c)
	}
}
