package engine_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// allocRules holds a rule three levels deep with a wildcard and one limit, a blocklist and lookups.
const allocRules = `
domain: shop
blocklist:
  - {key: ip, cidr: 203.0.113.0/24}
  - {key: user, prefix: bot-}
lookups:
  - {from: api_key, to: tier, default: free, values: {k: gold}}
  - {from: tier, to: region, values: {gold: eu}}
descriptors:
  - key: region
    descriptors:
      - key: tier
        any_of: [gold, silver]
        descriptors:
          - {key: api_key, regex: "[a-z]+", rate_limit: {unit: hour, requests_per_unit: 1000}}
  - key: tenant
    descriptors:
      - key: path
        value: "/api/*"
        descriptors:
          - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000}}
          - {key: agent, quota_mode: true, rate_limit: {name: agents, unit: hour, requests_per_unit: 1000}}
      - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: agents}]}}
`

// allocBounds are the allocations of a decision once its scratch has grown. The numbers only go down.
var allocBounds = []struct {
	name, request string
	want          float64
}{
	{"three levels, a wildcard, one limit", "shop | [tenant=t, path=/api/x, user=u]", 0},
	{"refused", "shop | [tenant=t, path=/api/x, user=hungry]h1001", 0},
	{"several descriptors", "shop | [tenant=t, path=/api/x, user=u] [tenant=t, trial=t] [tenant=t, path=/api/x, agent=a]", 0},
	{"blocked", "shop | [tenant=t, path=/api/x, user=u] [ip=::ffff:203.0.113.7]", 0},
	{"two derived entries, a list, a regex", "shop | [api_key=k] [api_key=k]", 0},
	{"unmatched", "shop | [nothing=x]", 0},
	{"unknown domain", "nowhere | [tenant=t, path=/api/x, user=u]", 0},
	{"override of a rule", "shop | [tenant=t, path=/api/x, user=u]L5/second", 0},
	{"override without a rule", "shop | [a=b, c=d]L5/second", 1}, // the path in its answer
}

// An engine as a service has it: with metrics, and a tracer whose caller is not recorded.
func allocEngine(t testing.TB) *engine.Engine {
	t.Helper()
	return newEngine(t, allocRules, engine.Options{
		Registerer: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider().Tracer(""),
	})
}

func TestDecideAllocates(t *testing.T) {
	if raceEnabled {
		return // the detector allocates; make test runs this without it, too
	}
	e := allocEngine(t)
	for _, tt := range allocBounds {
		req, v := parse(t, tt.request), new(engine.Verdict)
		got := testing.AllocsPerRun(2000, func() {
			if err := e.Decide(t.Context(), req, v); err != nil {
				t.Fatal(err)
			}
		})
		if got > tt.want {
			t.Errorf("%s: got %v allocations, want %v", tt.name, got, tt.want)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	e := allocEngine(b)
	for _, tt := range allocBounds {
		b.Run(tt.name, func(b *testing.B) {
			req, v := parse(b, tt.request), new(engine.Verdict)
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Decide(b.Context(), req, v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
