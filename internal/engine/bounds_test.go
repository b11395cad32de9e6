package engine_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

const boundsRules = `
domain: shop
defaults: {algorithm: fixed_window}
descriptors:
  - {key: api, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: detailed, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: valued, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 10}}
`

// No request makes a series: not by a domain, a value, an override or a key of its own.
func TestC29SeriesAreBounded(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	e := newEngine(t, boundsRules, engine.Options{Registerer: r})
	n := 100_000
	if raceEnabled {
		n = 5_000
	}
	ask := func(i int) {
		for _, request := range []string{
			fmt.Sprintf("d%d | [api=%d]", i, i),
			fmt.Sprintf("shop | [api=%d] [api%d=x] [k%d=v%d]L5/hour [detailed=%d] [valued=%d] [api=x]L%d/hour", i, i, i, i, i, i, i),
		} {
			if err := e.Decide(t.Context(), parse(t, request), new(engine.Verdict)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 2000 {
		ask(i)
	}
	before := len(metrics(t, r))
	for i := 2000; i < n; i++ {
		ask(i)
	}
	got := metrics(t, r)
	if len(got) != before {
		t.Errorf("got %d series after %d requests, want the %d after 2000", len(got), n, before)
	}
	// Beyond its first thousand values a rule is counted as one, and nothing is lost.
	for _, name := range []string{"detailed", "valued"} {
		total := 0
		for line, value := range got {
			if strings.HasPrefix(line, "ratelimitd_hits_total{") && strings.Contains(line, `rule="`+name) {
				var k int
				if _, err := fmt.Sscan(value, &k); err != nil {
					t.Fatal(err)
				}
				total += k
			}
		}
		if other := got[`ratelimitd_hits_total{domain="shop",limit="hour",rule="`+name+`._other"}`]; other != fmt.Sprint(n-1000) {
			t.Errorf("%s: got %s hits of other values, want %d", name, other, n-1000)
		}
		if total != n {
			t.Errorf("%s: got %d hits, want %d", name, total, n)
		}
	}
}

func TestTooManyChargesAreRefusedWithoutTheStore(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	s := &countingStore{}
	e := newEngine(t, boundsRules, engine.Options{Registerer: r, Store: s})
	request := func(n int) string {
		return "shop | [nothing=x] [free=x] [trial=x]" + strings.Repeat(" [api=x]", n)
	}
	v := decide(t, e, request(store.MaxCharges-1))
	if v.Over || s.calls != 1 {
		t.Errorf("%d charges: got over %v after %d calls, want false after 1", store.MaxCharges, v.Over, s.calls)
	}
	v = decide(t, e, request(store.MaxCharges))
	if !v.Over || s.calls != 1 || len(v.Statuses) != store.MaxCharges+3 {
		t.Fatalf("got over %v with %d statuses after %d calls, want true with %d after 1", v.Over, len(v.Statuses), s.calls, store.MaxCharges+3)
	}
	for i, st := range v.Statuses {
		switch {
		case i == 0 && (st.Over || st.HasLimit), i == 1 && (st.Over || !st.Unlimited), i == 2 && (st.Over || !st.HasLimit):
			t.Errorf("status %d: got %+v, want it not over", i, st)
		case i > 2 && (!st.Over || st.Remaining != 0 || st.RetryAfter != bucket.Never || st.Requests != 10):
			t.Errorf("status %d: got %+v, want over for ever", i, st)
		}
	}
	if v.Nearest != 3 {
		t.Errorf("got nearest %d, want 3", v.Nearest)
	}
	// Shadow rules refuse nothing, however many.
	v = decide(t, e, "shop |"+strings.Repeat(" [trial=x]", store.MaxCharges+1))
	if v.Over || s.calls != 1 || v.Statuses[0].Over {
		t.Errorf("shadows only: got over %v, first %+v after %d calls, want none over after 1", v.Over, v.Statuses[0], s.calls)
	}
	if got := metrics(t, r)[`ratelimitd_too_many_charges_total{domain="shop"}`]; got != "2" {
		t.Errorf("got %s counted, want 2", got)
	}
}

// countingStore admits everything, and counts its calls.
type countingStore struct{ calls int }

func (s *countingStore) Take(_ context.Context, _ []store.Charge, out []store.Decision) error {
	s.calls++
	for i := range out {
		out[i].Allowed = true
	}
	return nil
}

// A rule may ask for more than a request may, and a request for more than the operator allows.
func TestOverridesAreCapped(t *testing.T) {
	t.Parallel()
	e := newEngine(t, boundsRules, engine.Options{OverrideMax: 100})
	for request, want := range map[string]uint32{
		"shop | [api=a]L99/hour":          99,
		"shop | [api=a]L100/hour":         100,
		"shop | [api=a]L4294967295/hour":  100,
		"shop | [none=a]L4294967295/hour": 100,
	} {
		if got := decide(t, e, request).Statuses[0].Requests; got != want {
			t.Errorf("%s: got a limit of %d, want %d", request, got, want)
		}
	}
}

// The units by the numbers of envoy.type.v3.RateLimitUnit.
func TestOverrideUnits(t *testing.T) {
	t.Parallel()
	e := newEngine(t, boundsRules, engine.Options{})
	for number, want := range map[int32]bucket.Unit{
		-1: bucket.Hour, 0: bucket.Hour, 1: bucket.Second, 2: bucket.Minute, 3: bucket.Hour, 4: bucket.Day, 5: bucket.Month,
		6: bucket.Year, 7: bucket.Week, 8: bucket.Hour, 99: bucket.Hour, math.MaxInt32: bucket.Hour, math.MinInt32: bucket.Hour,
	} {
		req := &engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{{
			Entries: []rule.Entry{{Key: "api", Value: "x"}}, HasOverride: true, Override: engine.Override{Requests: 5, Unit: number},
		}}}
		v := new(engine.Verdict)
		if err := e.Decide(t.Context(), req, v); err != nil {
			t.Fatal(err)
		}
		st := v.Statuses[0]
		wantRequests := uint32(5)
		if want == bucket.Hour && number != 3 {
			wantRequests = 10 // the rule's
		}
		if st.Unit != want || st.Requests != wantRequests {
			t.Errorf("unit %d: got %d per %v, want %d per %v", number, st.Requests, st.Unit, wantRequests, want)
		}
	}
}

// A request that asks for too long a log is decided by its rule, and counted.
func TestOverrideOfTooLongALogIsIgnored(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	e := newEngine(t, "domain: shop\ndescriptors: [{key: api, rate_limit: {algorithm: sliding_log, unit: hour, requests_per_unit: 10}}]",
		engine.Options{Registerer: r})
	for request, want := range map[string]string{
		"shop | [api=x]L1000/HOUR": "OK {OK r999}",
		"shop | [api=y]L1001/HOUR": "OK {OK r9}",
	} {
		if got := shorthand.FormatAnswer(decide(t, e, request)); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
	if got := metrics(t, r)[`ratelimitd_overrides_invalid_total{domain="shop"}`]; got != "1" {
		t.Errorf("got %s counted as invalid, want 1", got)
	}
}
