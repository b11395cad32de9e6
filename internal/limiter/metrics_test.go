package limiter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

func TestMetricsOfAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		reg := prometheus.NewRegistry()
		l := open(t, Options{Store: p, OwnTimer: true, Local: newPrimary(), Topology: OneShard("redis", p.probe), Registerer: reg})
		want := func(when string, metrics map[string]float64) {
			t.Helper()
			for name, value := range metrics {
				name, labels, _ := strings.Cut(name, " ")
				if got := metric(t, reg, name, strings.Fields(labels)...); got != value {
					t.Errorf("%s: got %v for %s %s, want %v", when, got, name, labels, value)
				}
			}
		}
		take(l, charge(t, perHour(10), strict))
		want("healthy", map[string]float64{
			"ratelimitd_breaker_state shard redis":            0,
			"ratelimitd_limiter_degraded":                     0,
			"ratelimitd_breaker_transitions_total":            0,
			"ratelimitd_fallback_decisions_total":             0,
			"ratelimitd_limiter_in_flight":                    0,
			"ratelimitd_limiter_saturated_total":              0,
			"ratelimitd_limiter_degraded mode fail_open":      0,
			"ratelimitd_limiter_denied_total":                 0,
			"ratelimitd_limiter_unsettled_total":              0,
			"ratelimitd_breaker_state shard nothing-of-sorts": 0,
		})
		p.fault.Store(down)
		for range 20 {
			take(l, charge(t, perHour(10), strict))
		}
		want("down", map[string]float64{
			"ratelimitd_breaker_state shard redis":                                   1,
			"ratelimitd_breaker_transitions_total shard redis to open":               1,
			"ratelimitd_limiter_degraded mode local_strict":                          1,
			"ratelimitd_limiter_degraded mode fail_open":                             0,
			"ratelimitd_limiter_degraded mode fail_closed":                           0,
			"ratelimitd_fallback_decisions_total rule web.login mode local_strict":   20,
			"ratelimitd_fallback_decisions_total rule web.login mode something_else": 0,
		})
		p.fault.Store(nil)
		time.Sleep(5 * time.Second)
		want("back", map[string]float64{
			"ratelimitd_breaker_state shard redis":                       0,
			"ratelimitd_breaker_transitions_total shard redis to closed": 1,
			"ratelimitd_limiter_degraded mode local_strict":              1, // in the last 10 s
		})
		time.Sleep(5*time.Second + 1)
		want("10 s later", map[string]float64{"ratelimitd_limiter_degraded": 0})
	})
}

func TestMetricOfDenials(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	l := open(t, Options{Store: newPrimary(), OwnTimer: true, Registerer: reg})
	c := charge(t, perHour(10), keeps)
	for range 14 {
		take(l, c)
	}
	if got := metric(t, reg, "ratelimitd_limiter_denied_total"); got != 3 {
		t.Errorf("got %v denied from memory, want 3 of the 4 denied", got)
	}
}

// A correction that the store does not take is counted, and not tried again.
func TestMetricOfCorrections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		p, lost := newPrimary(), charge(t, perHour(1), fails)
		calls := 0
		s := storeFunc(func(ctx context.Context, charges []store.Charge, out []store.Decision) error {
			if calls++; charges[0].Hits < 0 {
				leaveUnpaid(charges, out)
				return store.ErrUnavailable
			}
			return p.takeSome(ctx, charges, out, func(c *store.Charge) bool { return c.Key == lost.Key })
		})
		l := open(t, Options{Store: s, OwnTimer: true, Local: newPrimary(), Registerer: reg})
		take(l, lost)
		take(l, charge(t, perHour(10), fails), lost)
		synctest.Wait()
		if got := metric(t, reg, "ratelimitd_limiter_unsettled_total"); got != 1 || calls != 3 {
			t.Errorf("got %v corrections lost in %d calls, want 1 in 3", got, calls)
		}
	})
}

// After Close nothing is started any more, and what is asked is still decided.
func TestClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		p.fault.Store(down)
		l := open(t, Options{Store: p, OwnTimer: true, Local: newPrimary(), Topology: OneShard("0", dies)})
		c := charge(t, perHour(1000), fails)
		admits(l, c, 20)
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if got := admits(l, c, 20); got != 20 {
			t.Errorf("got %d decided after Close, want 20", got)
		}
		l.Nudge()
	})
}
