package engine_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// replicas returns engines as n processes would have them: one each, with a store each where the store is shared.
func replicas(t *testing.T, b backend, yaml string, n int) []*engine.Engine {
	t.Helper()
	shared, _ := b.fresh(t, nil)
	engines := make([]*engine.Engine, n)
	for i := range engines {
		s := shared
		if b.join != nil && i > 0 {
			s = b.join(t)
		}
		engines[i] = newEngine(t, yaml, engine.Options{Store: s})
	}
	return engines
}

// admitted asks calls times from each of many clients, spread over the engines, and counts what was admitted.
func admitted(t *testing.T, engines []*engine.Engine, clients, calls int, request string) int {
	t.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	req := parse(t, request)
	for i := range clients {
		wg.Go(func() {
			v := new(engine.Verdict)
			for range calls {
				if err := engines[i%len(engines)].Decide(t.Context(), req, v); err != nil {
					t.Error(err)
					return
				}
				if !v.Over {
					n.Add(1)
				}
				if v.Statuses[0].Origin == store.Unavailable {
					t.Errorf("the store was away: %+v", v.Statuses[0])
					return
				}
			}
		})
	}
	wg.Wait()
	return int(n.Load())
}

// exactRules have windows of a year, so that none ends during a test.
const exactRules = `
domain: shop
defaults: {algorithm: fixed_window}
descriptors:
  - {key: api, rate_limit: {unit: year, requests_per_unit: 50}}
  - {key: user, rate_limit: {unit: year, requests_per_unit: 50}}
  - {key: site, rate_limit: {unit: year, requests_per_unit: 60}}
  - {key: hot, rate_limit: {unit: year, requests_per_unit: 500}}
  - {key: token, rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 500}}
  - {key: log, rate_limit: {algorithm: sliding_log, unit: year, requests_per_unit: 500}}
`

func TestC09ExactFromSeveralReplicas(t *testing.T) {
	t.Parallel()
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			engines := replicas(t, b, exactRules, 4)
			if got := admitted(t, engines, 100, 5, "shop | [api=hot]"); got != 50 {
				t.Errorf("got %d admitted, want 50", got)
			}
			if got := admitted(t, engines, 100, 5, "shop | [user=u] [site=s]"); got != 50 {
				t.Errorf("got %d admitted, want 50", got)
			}
			if got := decide(t, engines[0], "shop | [site=s]").Statuses[0].Remaining; got != 9 {
				t.Errorf("site: got %d remaining, want 9", got)
			}
			// The other order, at the same time as the first.
			var wg sync.WaitGroup
			var n atomic.Int64
			for _, request := range []string{"shop | [user=v] [site=v]", "shop | [site=v] [user=v]"} {
				wg.Go(func() { n.Add(int64(admitted(t, engines, 50, 5, request))) })
			}
			wg.Wait()
			if n.Load() != 50 {
				t.Errorf("both orders: got %d admitted, want 50", n.Load())
			}
		})
	}
}

func TestExactly500(t *testing.T) {
	t.Parallel()
	calls := 5000
	if raceEnabled {
		calls = 200
	}
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			engines := replicas(t, b, exactRules, 2)
			if got := admitted(t, engines, 64, calls, "shop | [hot=x]"); got != 500 {
				t.Errorf("fixed window: got %d admitted, want 500", got)
			}
			// A bucket of 500 a year gains one hit in 17 hours.
			if got := admitted(t, engines, 64, calls/10, "shop | [token=x]"); got != 500 {
				t.Errorf("token bucket: got %d admitted, want 500", got)
			}
			if got := admitted(t, engines, 64, max(calls/50, 10), "shop | [log=x]"); got != 500 {
				t.Errorf("log: got %d admitted, want 500", got)
			}
		})
	}
}

// Two replicas of one Redis, the second's clock ten seconds behind: Redis has one clock, and it is the one that counts.
func TestC55SlowClockDoesNotRefill(t *testing.T) {
	t.Parallel()
	b := redisBackend(t)
	// Two an hour in place of two a second, so that no load on the machine makes the bucket gain a hit meanwhile.
	const rules = `
domain: shop
descriptors:
  - {key: api, rate_limit: {unit: hour, requests_per_unit: 2, burst: 4}}
`
	shared, _ := b.fresh(t, nil)
	fast := newEngine(t, rules, engine.Options{Store: shared})
	behind := func() time.Time { return time.Now().Add(-10 * time.Second) }
	slow := newEngine(t, rules, engine.Options{Store: b.join(t), Now: behind})
	n := 0
	for _, step := range []struct {
		e     *engine.Engine
		calls int
	}{{fast, 5}, {slow, 1}, {fast, 5}} {
		for range step.calls {
			if !decide(t, step.e, "shop | [api=x]").Over {
				n++
			}
		}
	}
	if n != 4 {
		t.Errorf("got %d admitted, want 4", n)
	}
}
