package engine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

const explainRules = `
domain: shop
defaults: {algorithm: fixed_window}
descriptors:
  - key: tenant
    descriptors:
      - key: path
        value: "/api/*"
        rate_limit: {name: paths, unit: hour, requests_per_unit: 10}
      - {key: path, value: /free, rate_limit: {unlimited: true, replaces: [{name: base}]}}
      - key: empty
  - {key: base, rate_limit: {name: base, unit: hour, requests_per_unit: 10}}
  - {key: log, rate_limit: {algorithm: sliding_log, unit: hour, requests_per_unit: 10}}
  - {key: bucket, rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 2, burst: 4}}
  - {key: trial, shadow_mode: true, quota_mode: true, quota_group: g, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: debt, rate_limit: {algorithm: token_bucket, unit: hour, requests_per_unit: 10, debt: 10}}
`

func explain(t *testing.T, e *engine.Engine, request string) *engine.Explanation {
	t.Helper()
	x, err := e.Explain(t.Context(), parse(t, request))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestExplainSaysWhy(t *testing.T) {
	t.Parallel()
	e := newEngine(t, explainRules, engine.Options{})
	for _, tt := range []struct{ request, match, rule, why string }{
		{"shop | [tenant=t, path=/api/x]", "key only, wildcard", "tenant.path_/api/*", "the rule matches"},
		{"shop | [tenant=t, path=/free]", "key only, exact", "tenant.path_/free", "the rule is unlimited"},
		{"shop | [tenant=t, empty=x]", "key only, key only", "tenant.empty", "the rule is a node without a limit"},
		{"shop | [tenant=t]", "key only", "", "tenant has no limit: it only leads to the nodes below it"},
		{"shop | [tenant=t, path=/other]", "key only, none", "", "tenant has no node for path=/other below it"},
		{"shop | [tenant=t, path=/api/x, user=u]", "key only, wildcard, none", "", "path_/api/* has no node for user=u below it"},
		{"shop | [nothing=x, more=y]", "none", "", "the domain has no node for nothing=x"},
		{"shop | []", "", "", "a descriptor without entries matches nothing"},
		{"nowhere | [base=x]", "", "", "no rules name this domain"},
		{"shop | [nothing=x]L5/hour", "none", "", "the request's own limit applies; it needs no rule"},
		{"shop | [base=x]L5/hour", "key only", "base", "the rule matches; the request's own limit replaces its numbers"},
		{"shop | [base=x] [tenant=t, path=/free]", "key only", "base", "every limit of the rule is replaced by another rule of this request"},
	} {
		d := explain(t, e, tt.request).Descriptors[0]
		matches := make([]string, len(d.Levels))
		for i, l := range d.Levels {
			matches[i] = l.Match
		}
		if got := strings.Join(matches, ", "); got != tt.match || d.Rule != tt.rule || d.Why != tt.why {
			t.Errorf("%s:\n got %s | %s | %s\nwant %s | %s | %s", tt.request, got, d.Rule, d.Why, tt.match, tt.rule, tt.why)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	e := newEngine(t, explainRules, engine.Options{Now: func() time.Time { return time.Unix(7200, 0) }})
	decide(t, e, "shop | [base=x]h4")
	got := explain(t, e, "shop | [base=x]h7 [trial=a] [tenant=t, path=/api/x]L5/minute [base=y]L5")
	want := &engine.Explanation{
		Domain: "shop", Known: true, Profile: "native",
		Peek:  &engine.Outcome{Descriptor: new(int), Rule: "shop.base", Limit: "base", Remaining: 6},
		Asked: &engine.Outcome{Over: true, Descriptor: new(int), Rule: "shop.base", Limit: "base", RetryAfter: 3600},
		Descriptors: []engine.ExplainedDescriptor{
			{
				Entries: []string{"base=x"}, Rule: "base", At: "rules.yaml:12", Why: "the rule matches", Hits: 7,
				Levels: []engine.Level{{Entry: "base=x", Match: "key only", Node: "base", At: "rules.yaml:12"}},
				Charges: []engine.ExplainedCharge{{
					Limit: "base", Algorithm: "fixed_window", Requests: 10, Unit: "hour", Multiplier: 1, Period: 3600,
					Remaining: 6, Reset: 3600, AskedOver: true, RetryAfter: 3600,
				}},
			},
			{
				Entries: []string{"trial=a"}, Rule: "trial", At: "rules.yaml:15", Why: "the rule matches", Hits: 1,
				Levels: []engine.Level{{Entry: "trial=a", Match: "key only", Node: "trial", At: "rules.yaml:15"}},
				Shadow: true, Quota: true, Group: "g",
				Charges: []engine.ExplainedCharge{{
					Algorithm: "fixed_window", Requests: 1, Unit: "hour", Multiplier: 1, Period: 3600, Remaining: 1, Reset: 3600,
				}},
			},
			{
				Entries: []string{"tenant=t", "path=/api/x"}, Rule: "tenant.path_/api/*", At: "rules.yaml:7", Hits: 1,
				Why: "the rule matches; the request's own limit replaces its numbers",
				Levels: []engine.Level{
					{Entry: "tenant=t", Match: "key only", Node: "tenant", At: "rules.yaml:5"},
					{Entry: "path=/api/x", Match: "wildcard", Node: "path_/api/*", At: "rules.yaml:7"},
				},
				Override: "5 per minute, in place of the rule's numbers",
				Charges: []engine.ExplainedCharge{{
					Limit: "paths", Algorithm: "fixed_window", Requests: 5, Unit: "minute", Multiplier: 1, Period: 60, Remaining: 5, Reset: 60,
				}},
			},
			{
				Entries: []string{"base=y"}, Rule: "base", At: "rules.yaml:12", Why: "the rule matches", Hits: 1,
				Levels:   []engine.Level{{Entry: "base=y", Match: "key only", Node: "base", At: "rules.yaml:12"}},
				Override: "ignored: its unit is unknown, its multiplier is 0, or the rule's algorithm cannot keep it",
				Charges: []engine.ExplainedCharge{{
					Limit: "base", Algorithm: "fixed_window", Requests: 10, Unit: "hour", Multiplier: 1, Period: 3600, Remaining: 10, Reset: 3600,
				}},
			},
		},
	}
	opts := cmp.Options{cmpopts.IgnoreFields(engine.ExplainedCharge{}, "Key"), cmpopts.IgnoreFields(engine.Explanation{}, "Snapshot")}
	if diff := cmp.Diff(want, got, opts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	keys := make(map[string]bool)
	for _, d := range got.Descriptors {
		keys[d.Charges[0].Key] = true
		if len(d.Charges[0].Key) != store.KeyLen {
			t.Errorf("got key %q, want it as Redis sees it", d.Charges[0].Key)
		}
	}
	if len(keys) != 4 {
		t.Errorf("got %d keys, want 4", len(keys))
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
}

// What Explain foretells is what Decide then does; and asking changes nothing, on either store.
func TestExplainForetellsAndWritesNothing(t *testing.T) {
	t.Parallel()
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			clock := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
			s, keys := b.fresh(t, clock)
			r := prometheus.NewRegistry()
			e := newEngine(t, explainRules, engine.Options{Store: s, Now: clock, Registerer: r})
			for _, request := range []string{
				"shop | [base=x]h4", "shop | [base=x]h7", "shop | [base=x]h6", "shop | [base=x]", "shop | [base=x]h-3", "shop | [base=x]h0",
				"shop | [log=x]h10", "shop | [log=x]", "shop | [bucket=x]h3", "shop | [bucket=x]h3", "shop | [bucket=x] [bucket=x]",
				"shop | [debt=x]h15", "shop | [debt=x]", "shop | [trial=a] [base=z]", "shop | [trial=a] [base=z]",
				"shop | [base=z]h5 [base=z]h5", "shop | [base=z]L3/minute [nothing=x]L1/second", "shop | [base=z]L3/minute [nothing=x]L1/second",
				"shop | [tenant=t, path=/free] [base=q]", "nowhere | [base=x]",
			} {
				before := keys()
				x := explain(t, e, request)
				if again := explain(t, e, request); !cmp.Equal(x, again) {
					t.Errorf("%s: explained twice:\n%s", request, cmp.Diff(x, again))
				}
				if got := keys(); got != before {
					t.Errorf("%s: got %d keys after explaining, want %d", request, got, before)
				}
				v := decide(t, e, request)
				if x.Asked.Over != v.Over {
					t.Errorf("%s: foretold over %v, got %v", request, x.Asked.Over, v.Over)
				}
				for i, d := range x.Descriptors {
					for _, c := range d.Charges {
						if st := v.Statuses[i]; len(d.Charges) == 1 && !d.Shadow && c.AskedOver != st.Over {
							t.Errorf("%s: status %d: foretold over %v, got %v", request, i, c.AskedOver, st.Over)
						}
					}
				}
			}
			if got := metrics(t, r)[`ratelimitd_unmatched_descriptors_total{domain="_unknown"}`]; got != "1" {
				t.Errorf("got %s unmatched counted, want the one that was decided", got)
			}
		})
	}
}

func TestExplainOfTooManyCharges(t *testing.T) {
	t.Parallel()
	e := newEngine(t, explainRules, engine.Options{})
	x := explain(t, e, "shop |"+strings.Repeat(" [base=x]", store.MaxCharges))
	if x.TooMany || x.Peek == nil || x.Peek.Over || x.Asked != nil {
		t.Errorf("%d charges: got %+v, want a look, and nothing said of the hits", store.MaxCharges, x)
	}
	x = explain(t, e, "shop |"+strings.Repeat(" [base=x]", store.MaxCharges+1))
	if !x.TooMany || x.Peek != nil || !x.Asked.Over {
		t.Errorf("%d charges: got %+v, want too many", store.MaxCharges+1, x)
	}
}

// listRules have entries derived from others, and some refused.
const listRules = `
domain: shop
blocklist:
  - {key: ip, cidr: 203.0.113.0/24, reason: "scraper, ticket 4711"}
lookups:
  - {from: api_key, to: tier, default: free, values: {k-1: gold}}
descriptors:
  - key: tier
    any_of: [gold, silver]
    descriptors:
      - {key: api_key, rate_limit: {unit: hour, requests_per_unit: 10}}
`

func TestExplainShowsDerivedEntries(t *testing.T) {
	t.Parallel()
	e := newEngine(t, listRules, engine.Options{})
	d := explain(t, e, "shop | [path=/, api_key=k-1]").Descriptors[0]
	if diff := cmp.Diff([]string{"path=/", "tier=gold", "api_key=k-1"}, d.Matched); diff != "" {
		t.Errorf("matched entries (-want +got):\n%s", diff)
	}
	d = explain(t, e, "shop | [api_key=k-1]").Descriptors[0]
	want := []engine.Level{
		{Entry: "tier=gold", Match: "any_of", Node: "tier_any_of(gold,silver)", At: "rules.yaml:8"},
		{Entry: "api_key=k-1", Match: "key only", Node: "api_key", At: "rules.yaml:11"},
	}
	if diff := cmp.Diff(want, d.Levels); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
	if d := explain(t, e, "shop | [tier=gold]").Descriptors[0]; d.Matched != nil {
		t.Errorf("nothing is derived: got %v", d.Matched)
	}
}

func TestExplainSaysWhoIsBlocked(t *testing.T) {
	t.Parallel()
	e := newEngine(t, listRules, engine.Options{})
	x := explain(t, e, "shop | [api_key=k-1] [ip=::ffff:203.0.113.7, user=u]")
	want := []engine.ExplainedDescriptor{
		{Entries: []string{"api_key=k-1"}, Why: "not looked at: the blocklist refuses another descriptor of the request", Hits: 1},
		{
			Entries: []string{"ip=::ffff:203.0.113.7", "user=u"}, Why: "the blocklist refuses it", Hits: 1,
			Blocked: &engine.ExplainedBlock{Key: "ip", Match: "cidr(203.0.113.0/24)", Reason: "scraper, ticket 4711", At: "rules.yaml:4"},
		},
	}
	if diff := cmp.Diff(want, x.Descriptors); diff != "" {
		t.Errorf("descriptors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&engine.Outcome{Over: true, RetryAfter: -1}, x.Asked); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	x = explain(t, newEngine(t, listRules, engine.Options{Shadow: true}), "shop | [ip=203.0.113.7]")
	if x.Asked.Over || !x.Asked.Shadowed {
		t.Errorf("under --shadow: got %+v, want a request that passes", x.Asked)
	}
}
