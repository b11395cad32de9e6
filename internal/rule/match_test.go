package rule

import (
	"fmt"
	"strings"
	"testing"
)

// load compiles one file and fails the test if it has mistakes.
func load(t testing.TB, yaml string) *Snapshot {
	t.Helper()
	s, _, err := Load([]File{{Name: "rules.yaml", Data: []byte(yaml)}}, Options{})
	if err != nil {
		t.Fatalf("load:\n%v\n%s", err, yaml)
	}
	return s
}

// entries reads "key=value, key=value"; a value may be empty.
func entries(s string) []Entry {
	var es []Entry
	for part := range strings.SplitSeq(s, ", ") {
		if key, value, ok := strings.Cut(part, "="); ok {
			es = append(es, Entry{key, value})
		}
	}
	return es
}

// matched names what the entries reach in the snapshot's first domain: the rule's path, or "none".
func matched(s *Snapshot, descriptor string) string {
	if r := s.Domains()[0].Match(entries(descriptor)); r != nil {
		return r.Path
	}
	return "none"
}

func TestMatchTakesTheMostSpecificSibling(t *testing.T) {
	t.Parallel()
	const rules = `
domain: shop
descriptors:
  - key: path
  - {key: path, value: /login}
  - {key: path, value: "/api/*"}
  - {key: path, value: "/api/admin/*"}
  - {key: path, value: "*.png"}
  - {key: path, value: "/api/*/edit"}
  - {key: path, value: "/a*i/x*z"}
  - key: "foo*"
  - key: foobar
  - key: "httproute/ns/r/match/0/*"
    value: "httproute/ns/r/match/0/*"
  - key: tenant
    descriptors:
      - {key: user, value: a_b}
      - {key: user_a, value: b}
`
	for descriptor, want := range map[string]struct{ native, envoy string }{
		"path=/login":       {"path_/login", "path_/login"},
		"path=/other":       {"path", "path"},
		"path=":             {"path", "path"},
		"path=/api/x":       {"path_/api/*", "path_/api/*"},
		"path=/api/admin/x": {"path_/api/admin/*", "path_/api/*"},
		"path=/api/*":       {"path_/api/*", "path_/api/*"},
		"path=/api/7/edit":  {"path_/api/*/edit", "path_/api/*"},
		"path=/img.png":     {"path_*.png", "path_*.png"},
		"path=/api/img.png": {"path_/api/*", "path_/api/*"},
		"path=/abi/xyz":     {"path_/a*i/x*z", "path_/a*i/x*z"},
		"path=/api/xyz":     {"path_/a*i/x*z", "path_/api/*"},
		"foobaz=1":          {"foo*", "foo*"},
		"foobar=1":          {"foo*", "foo*"},
		"fo=1":              {"none", "none"},
		"httproute/ns/r/match/0/*=httproute/ns/r/match/0/*": {
			"httproute/ns/r/match/0/*_httproute/ns/r/match/0/*", "httproute/ns/r/match/0/*_httproute/ns/r/match/0/*"},
		"tenant=t":               {"none", "none"},
		"tenant=t, user=x":       {"none", "none"},
		"path=/login, user=x":    {"none", "none"},
		"unknown=x":              {"none", "none"},
		"":                       {"none", "none"},
		"tenant=t, user=a_b":     {"tenant.user_a_b", "tenant.user_a_b"},
		"tenant=t, user_a=b":     {"tenant.user_a_b", "tenant.user_a_b"},
		"path_/api/admin=secret": {"none", "path_/api/*"},
	} {
		if got := matched(load(t, rules), descriptor); got != want.native {
			t.Errorf("native: [%s] reaches %s, want %s", descriptor, got, want.native)
		}
		envoy := strings.Replace(strings.Replace(rules, "domain", "profile: envoy\ndomain", 1), "      - {key: user_a, value: b}\n", "", 1)
		if got := matched(load(t, envoy), descriptor); got != want.envoy {
			t.Errorf("envoy: [%s] reaches %s, want %s", descriptor, got, want.envoy)
		}
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	const rules = `domain: shop
descriptors:
  - key: tenant
    descriptors:
      - {key: path, value: "/f/*"}
      - {key: path, value: /x}
      - key: path
`
	for _, profile := range []string{"native", "envoy"} {
		d := load(t, rules+"profile: "+profile).Domains()[0]
		for descriptor, want := range map[string]string{
			"":                              "",
			"other=t":                       "",
			"tenant=t":                      "tenant (key only) 3:5;",
			"tenant=t, path=/f/1":           "tenant (key only) 3:5; path_/f/* (wildcard) 5:9 rule;",
			"tenant=t, path=/f/*":           "tenant (key only) 3:5; path_/f/* (exact) 5:9 rule;",
			"tenant=t, path=/x":             "tenant (key only) 3:5; path_/x (exact) 6:9 rule;",
			"tenant=t, path=/y":             "tenant (key only) 3:5; path (key only) 7:9 rule;",
			"tenant=t, path=/y, more=x":     "tenant (key only) 3:5; path (key only) 7:9 rule;",
			"tenant=t, unknown=y, path=/f/": "tenant (key only) 3:5;",
		} {
			var b strings.Builder
			for _, s := range d.Steps(entries(descriptor)) {
				fmt.Fprintf(&b, " %s (%s) %d:%d", s.Node, s.Kind, s.Line, s.Col)
				if s.Rule != nil {
					b.WriteString(" rule")
				}
				b.WriteString(";")
			}
			if got := strings.TrimSpace(b.String()); got != want {
				t.Errorf("%s: [%s] goes %s, want %s", profile, descriptor, got, want)
			}
		}
	}
}
