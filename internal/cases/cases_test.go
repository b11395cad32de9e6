package cases

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

func load(t *testing.T, rules string) *rule.Snapshot {
	t.Helper()
	s, _, err := rule.Load([]rule.File{{Name: "rules.yaml", Data: []byte(rules)}}, rule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const rules = `
domain: shop
descriptors:
  - key: api
    rate_limit: {name: per-api, unit: minute, requests_per_unit: 60, burst: 2}
  - key: month
    rate_limit: {unit: month, requests_per_unit: 1, algorithm: fixed_window, calendar: UTC}
`

func run(t *testing.T, file string) []Result {
	t.Helper()
	set, err := Parse("cases.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	results, err := set.Run(t.Context(), load(t, rules))
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// Time passes as the file says, and each case begins with full buckets.
func TestVirtualTime(t *testing.T) {
	t.Parallel()
	got := run(t, `
start: 2028-02-29T23:59:30Z
cases:
  - name: first
    steps:
      - {ask: "shop | [api=x]", times: 2, want: OK}
      - {ask: "shop | [api=x]", want: OVER, wait: 1s, limit: per-api}
      - {at: 999ms, ask: "shop | [api=x]", want: OVER, wait: 1ms}
      - {at: 1s, ask: "shop | [api=x]", want: "OK {r0}"}
      - {at: 8760h, ask: "shop | [api=x]", want: "OK {r1}"}
  - name: second
    steps:
      - {ask: "shop | [api=x]", want: "OK {r1}"}
      - {ask: "shop | [month=x]", want: OK}
      - {ask: "shop | [month=x]", want: OVER, wait: 30s}
      - {at: 30s, ask: "shop | [month=x]", want: OK}
`)
	want := []Result{{Name: "first", Line: 4, Asked: 6}, {Name: "second", Line: 11, Asked: 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong results (-want +got):\n%s", diff)
	}
}

// A step that asks several times is told once, with the first answer that was not wanted; errors are answers too.
func TestFailures(t *testing.T) {
	t.Parallel()
	got := run(t, `
cases:
  - name: all wrong
    steps:
      - ask: shop | [api=x]
        times: 12
        want: OK
      - ask: ' | [api=x]'
        want: OK
      - ask: shop | [api=y]
        want: OK {r1}
        wait: 5s
        delay: 1s
        limit: other
`)
	want := []Failure{
		{"cases.yaml", 5, "all wrong", "OVER {OVER r0} at the 3rd of 12", "OK"},
		{"cases.yaml", 8, "all wrong", "error: domain is empty", "OK"},
		{"cases.yaml", 10, "all wrong", `OK {OK r1}, wait 0s, delay 0s, limit "per-api"`, `OK {r1}, wait 5s, delay 1s, limit "other"`},
	}
	if diff := cmp.Diff(want, got[0].Failures); diff != "" {
		t.Errorf("wrong failures (-want +got):\n%s", diff)
	}
	if s := want[1].String(); s != `cases.yaml:8: got error: domain is empty, want OK (case "all wrong")` {
		t.Errorf("got %s", s)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, file, want string }{
		{"empty", "", "f:1: yaml: no documents in stream"},
		{"no cases", "cases: []", "f:1: cases: want at least one"},
		{"not a mapping", "- a", "f:1: "},
		{"not YAML", "cases: [", "f:2: did not find"},
		{"unknown field", "casses: []", "f:1: field casses not found"},
		{"unknown field of a case", "cases:\n  - nam: x", "f:2: field nam not found"},
		{"unknown field of a step", "cases:\n  - name: x\n    steps:\n      - aks: x", "f:4: field aks not found"},
		{"start", "start: now\ncases: []", `f:1: start: "now": want a time like`},
		{"no steps", "cases:\n  - name: x", "f:2: steps: want at least one"},
		{"no want", "cases:\n  - name: x\n    steps: [{ask: 'a | [b=c]'}]", "f:3: a step wants both ask and want"},
		{"negative time", "cases:\n  - name: x\n    steps: [{at: -1s, ask: 'a | [b=c]', want: OK}]", `f:3: at: "-1s": want a time`},
		{"many times", "cases:\n  - name: x\n    steps: [{times: 1000001, ask: 'a | [b=c]', want: OK}]", `f:3: times: "1000001": want 1…1000000`},
		{"delay never", "cases:\n  - name: x\n    steps: [{delay: never, ask: 'a | [b=c]', want: OK}]", `f:3: delay: "never": want a time`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f", []byte(test.file))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s…", err, test.want)
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	set, err := Parse("f", []byte("cases:\n  - name: long\n    steps: [{ask: 'shop | [a=b]', want: OK, times: 1000000}]"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := set.Run(ctx, load(t, rules)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestOrdinal(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 112: "112th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
