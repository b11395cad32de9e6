package engine

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// A caller who asks for ever new numbers does not grow memory.
func TestOverridesKeptAreBounded(t *testing.T) {
	t.Parallel()
	const yaml = `
domain: shop
descriptors:
  - {key: api, rate_limit: {unit: hour, requests_per_unit: 10}}
`
	s, _, err := rule.Load([]rule.File{{Name: "rules.yaml", Data: []byte(yaml)}}, rule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := new(Engine).newView(s, nil)
	d := s.Domain("shop")
	r := d.Match([]rule.Entry{{Key: "api", Value: "x"}})
	for i := range uint32(3 * maxOverrides) {
		for _, r := range []*rule.Rule{r, nil} {
			o := Override{Requests: i, Unit: int32(i%7) + 1}
			l := v.override(d, r, o, 1<<32-1)
			if l == nil || l.Requests != i {
				t.Fatalf("%+v: got %+v", o, l)
			}
			if again := v.override(d, r, o, 1<<32-1); again != l {
				t.Fatalf("%+v: made twice", o)
			}
		}
		if n := len(v.overrides.m); n > maxOverrides {
			t.Fatalf("got %d kept, want at most %d", n, maxOverrides)
		}
	}
}

// What a request may ask of a sliding_log, which remembers every hit, is bounded as rules are.
func TestOverridesOfALogAreBounded(t *testing.T) {
	t.Parallel()
	const yaml = `
domain: shop
defaults: {algorithm: sliding_log}
descriptors:
  - {key: api, rate_limit: {unit: hour, requests_per_unit: 10, debt: 300}}
`
	s, _, err := rule.Load([]rule.File{{Name: "rules.yaml", Data: []byte(yaml)}}, rule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := new(Engine).newView(s, nil)
	d := s.Domain("shop")
	r := d.Match([]rule.Entry{{Key: "api", Value: "x"}})
	for _, tt := range []struct {
		rule     *rule.Rule
		requests uint32
		valid    bool
	}{{r, 700, true}, {r, 701, false}, {nil, 1000, true}, {nil, 1001, false}} {
		if got := v.override(d, tt.rule, Override{Requests: tt.requests, Unit: 3}, 1<<32-1) != nil; got != tt.valid {
			t.Errorf("%d, on a rule %v: got valid %v, want %v", tt.requests, tt.rule != nil, got, tt.valid)
		}
	}
}
