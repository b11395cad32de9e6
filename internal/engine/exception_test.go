package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
	"github.com/ratelimitd/ratelimitd/internal/override"
)

const exceptionRules = `
domain: shop
defaults: {algorithm: fixed_window}
descriptors:
  - {key: plan, value: pro, descriptors: [{key: user, rate_limit: {name: pro, unit: hour, requests_per_unit: 10}}]}
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 5}}
  - key: both
    limits:
      - {name: short, unit: minute, requests_per_unit: 2}
      - {name: long, unit: hour, requests_per_unit: 100}
  - {key: open, rate_limit: {unlimited: true}}
`

// prepared completes an override: a day, an author and a reason.
func prepared(t testing.TB, o override.Override) *override.Override {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o.Author, o.Reason, o.Expires = "ann", "ticket 7", now.Add(24*time.Hour)
	if err := o.Prepare(now); err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestOverridesByOperators(t *testing.T) {
	t.Parallel()
	rule := func(name string) override.Override { return override.Override{Rule: "shop." + name} }
	limit := func(o override.Override, n uint32) override.Override {
		o.Action, o.Requests = override.Limit, n
		return o
	}
	for _, tt := range []struct {
		name      string
		overrides []override.Override
		asked     []string // request -> answer
	}{
		{"none", nil, []string{
			"shop | [plan=pro, user=u]h4 -> OK {OK r6}",
		}},
		{"raised for all", []override.Override{limit(rule("pro"), 20)}, []string{
			"shop | [plan=pro, user=u]h4 -> OK {OK r16}",
			"shop | [plan=pro, user=v]h20 -> OK {OK r0}",
		}},
		{"lowered for all", []override.Override{limit(rule("pro"), 3)}, []string{
			"shop | [plan=pro, user=u]h4 -> OVER {OVER r0}",
		}},
		{"raised for one value", []override.Override{func() override.Override {
			o := limit(rule("pro"), 20)
			o.Key, o.Value = "user", "u"
			return o
		}()}, []string{
			"shop | [plan=pro, user=u]h4 -> OK {OK r16}",
			"shop | [plan=pro, user=v]h4 -> OK {OK r6}",
		}},
		{"a value before all, whichever came first", []override.Override{
			limit(rule("pro"), 3),
			{Rule: "shop.pro", Key: "user", Value: "u", Action: override.Exempt},
		}, []string{
			"shop | [plan=pro, user=u]h4 -> OK {OK r4294967295}",
			"shop | [plan=pro, user=v]h4 -> OVER {OVER r0}",
		}},
		{"one limit of two exempt", []override.Override{{Rule: "shop.short", Action: override.Exempt}}, []string{
			"shop | [both=x]h4 -> OK {OK r96}",
		}},
		{"a rule blocked", []override.Override{{Rule: "shop.pro", Action: override.Block}}, []string{
			"shop | [plan=pro, user=u] -> OVER {blocked}",
			"shop | [both=x]h2 -> OK {OK r0}",
		}},
		{"a network blocked, whatever its rule", []override.Override{{Network: "203.0.113.0/24", Action: override.Block}}, []string{
			"shop | [remote_address=203.0.113.9] -> OVER {blocked}",
			"shop | [both=x]h2 [other=x] [remote_address=::ffff:203.0.113.9] -> OVER {none, none, blocked}",
			"shop | [both=x]h2 [remote_address=203.0.114.9] -> OK {OK r0, OK r4}",
			"shop | [no_rule=x, remote_address=203.0.113.9] -> OVER {blocked}",
			"nowhere | [remote_address=203.0.113.9] -> OK {none}",
		}},
		{"an address within a blocked network exempt", []override.Override{
			{Network: "203.0.113.0/24", Action: override.Block},
			{Network: "203.0.113.9", Action: override.Exempt},
		}, []string{
			"shop | [remote_address=203.0.113.9]h50 -> OK {OK r4294967295}",
			"shop | [remote_address=203.0.113.8] -> OVER {blocked}",
		}},
		{"another domain", []override.Override{{Domain: "other", Network: "0.0.0.0/0", Action: override.Block}}, []string{
			"shop | [remote_address=203.0.113.9] -> OK {OK r4}",
		}},
		{"an unlimited rule blocked", []override.Override{{Key: "open", Value: "x", Action: override.Block}}, []string{
			"shop | [open=x] -> OVER {blocked}",
			"shop | [open=y] -> OK {OK r4294967295}",
		}},
		{"a request's own limit does not lift a block", []override.Override{{Rule: "shop.pro", Action: override.Block}}, []string{
			"shop | [plan=pro, user=u]L500/HOUR -> OVER {blocked}",
		}},
		{"a request's own limit does not bind the exempt", []override.Override{{Rule: "shop.pro", Action: override.Exempt}}, []string{
			"shop | [plan=pro, user=u]h4L1/HOUR -> OK {OK r4294967295}",
		}},
		{"a name that no limit has", []override.Override{limit(rule("prro"), 1)}, []string{
			"shop | [plan=pro, user=u]h4 -> OK {OK r6}",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t, exceptionRules, engine.Options{})
			var all []*override.Override
			for _, o := range tt.overrides {
				all = append(all, prepared(t, o))
			}
			e.SetOverrides(all)
			for _, line := range tt.asked {
				request, want, _ := strings.Cut(line, " -> ")
				if got := shorthand.FormatAnswer(decide(t, e, request)); got != want {
					t.Errorf("%s\n got %s\nwant %s", request, got, want)
				}
			}
		})
	}
}

// What was spent stays spent, under the override and after it, and across a reload.
func TestOverrideKeepsBuckets(t *testing.T) {
	t.Parallel()
	yaml := exceptionRules
	rules := new(snapshots)
	rules.Store(loadRules(t, yaml))
	e := newEngine(t, yaml, engine.Options{Snapshots: rules})
	ask := func(want string) {
		t.Helper()
		if got := shorthand.FormatAnswer(decide(t, e, "shop | [plan=pro, user=u]h4")); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	ask("OK {OK r6}")
	e.SetOverrides([]*override.Override{prepared(t, override.Override{Rule: "shop.pro", Action: override.Limit, Requests: 20})})
	ask("OK {OK r12}")
	rules.Store(loadRules(t, strings.ReplaceAll(yaml, "requests_per_unit: 10}", "requests_per_unit: 11}")))
	ask("OK {OK r8}")
	e.SetOverrides(nil)
	ask("OVER {OVER r0}")
}

func TestExplainOverrides(t *testing.T) {
	t.Parallel()
	e := newEngine(t, exceptionRules, engine.Options{})
	explain := func(request string) *engine.ExplainedDescriptor {
		x, err := e.Explain(t.Context(), parse(t, request))
		if err != nil {
			t.Fatal(err)
		}
		return &x.Descriptors[0]
	}
	raised := prepared(t, override.Override{Rule: "shop.pro", Action: override.Limit, Requests: 20})
	e.SetOverrides([]*override.Override{raised})
	want := fmt.Sprintf("[%s: limit 20 on shop.pro, by ann until 2026-01-02 00:00:00 UTC (ticket 7)]", raised.ID)
	d := explain("shop | [plan=pro, user=u]")
	if got := fmt.Sprint(d.Exceptions); got != want || d.Charges[0].Requests != 20 {
		t.Errorf("raised: got %s of %d, want %s of 20", got, d.Charges[0].Requests, want)
	}
	blocked := prepared(t, override.Override{Rule: "shop.pro", Action: override.Block})
	e.SetOverrides([]*override.Override{blocked})
	if d := explain("shop | [plan=pro, user=u]"); d.Blocked == nil || d.Blocked.At != "override "+blocked.ID {
		t.Errorf("blocked: got %+v", d.Blocked)
	}
}

// A block is told by how it was found, never by the value of a request: neither answers nor logs carry that.
func TestOverridesTellNoValues(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e := newEngine(t, exceptionRules, engine.Options{Logger: logger})
	for _, tt := range []struct {
		override override.Override
		request  string
		want     string // how it is told
	}{
		{override.Override{Key: "api_key", Value: "SECRET"}, "shop | [api_key=SECRET]", "value"},
		{override.Override{Rule: "shop.pro", Key: "user", Value: "SECRET"}, "shop | [plan=pro, user=SECRET]", "value"},
		{override.Override{Network: "203.0.113.0/24"}, "shop | [remote_address=203.0.113.9]", "cidr(203.0.113.0/24)"},
		{override.Override{Rule: "shop.pro"}, "shop | [plan=pro, user=u]", "shop.pro"},
	} {
		tt.override.Action = override.Block
		e.SetOverrides([]*override.Override{prepared(t, tt.override)})
		v := decide(t, e, tt.request)
		if v.Blocked == nil || v.Blocked.Match != tt.want {
			t.Errorf("%s: got %+v, want a block by %s", tt.request, v.Blocked, tt.want)
		}
		lost := tt.override // one that names what no rule has
		lost.Domain = "nowhere"
		o := prepared(t, lost)
		e.SetOverrides([]*override.Override{o})
		if !strings.Contains(b.String(), "override without effect") || !strings.Contains(b.String(), o.ID) {
			t.Errorf("%s: got no warning of %s:\n%s", tt.request, o.ID, b.String())
		}
		for line := range strings.Lines(b.String()) {
			if strings.Contains(line, "SECRET") {
				t.Errorf("%s: logged %s", tt.request, line)
			}
		}
		b.Reset()
	}
}

func TestOverridesDoNotAllocate(t *testing.T) {
	if raceEnabled {
		return // the detector allocates; make test runs this without it, too
	}
	e := newEngine(t, exceptionRules, engine.Options{})
	e.SetOverrides([]*override.Override{
		prepared(t, override.Override{Rule: "shop.pro", Action: override.Limit, Requests: 1_000_000}),
		prepared(t, override.Override{Network: "203.0.113.0/24", Action: override.Block}),
		prepared(t, override.Override{Network: "203.0.114.0/24", Action: override.Exempt}),
	})
	for _, request := range []string{
		"shop | [plan=pro, user=u] [both=x]",
		"shop | [plan=pro, user=u] [remote_address=203.0.113.1]",
		"shop | [plan=pro, user=u] [remote_address=203.0.114.1]",
		"shop | [plan=pro, user=u] [remote_address=unknown]",
	} {
		req, v := parse(t, request), new(engine.Verdict)
		if got := testing.AllocsPerRun(1000, func() {
			if err := e.Decide(t.Context(), req, v); err != nil {
				t.Fatal(err)
			}
		}); got > 0 {
			t.Errorf("%s: got %v allocations, want 0", request, got)
		}
	}
}

// Overrides change, and rules too, while requests are decided: each answer is one of those that some state gives.
func TestOverridesChangeUnderLoad(t *testing.T) {
	t.Parallel()
	yaml := "domain: shop\ndescriptors: [{key: api, rate_limit: {name: api, unit: year, requests_per_unit: %d, algorithm: fixed_window}}]"
	rules := new(snapshots)
	one, two := loadRules(t, fmt.Sprintf(yaml, 1_000_000)), loadRules(t, fmt.Sprintf(yaml, 2_000_000))
	rules.Store(one)
	e := newEngine(t, "", engine.Options{Snapshots: rules})
	raised := []*override.Override{prepared(t, override.Override{Rule: "shop.api", Action: override.Limit, Requests: 3_000_000})}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			v, req := new(engine.Verdict), parse(t, "shop | [api=x]")
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := e.Decide(context.Background(), req, v); err != nil {
					t.Error(err)
					return
				}
				if n := v.Statuses[0].Requests; v.Over || n != 1_000_000 && n != 2_000_000 && n != 3_000_000 {
					t.Errorf("got over %v of %d", v.Over, n)
					return
				}
			}
		})
	}
	for i := range 200 {
		if e.SetOverrides(nil); i%2 == 0 {
			e.SetOverrides(raised)
		}
		if rules.Store(one); i%3 == 0 {
			rules.Store(two)
		}
	}
	close(done)
	wg.Wait()
	e.SetOverrides(raised)
	if n := decide(t, e, "shop | [api=y]").Statuses[0].Requests; n != 3_000_000 {
		t.Errorf("in the end: got a limit of %d, want 3,000,000", n)
	}
}
