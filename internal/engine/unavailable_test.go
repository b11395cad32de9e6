package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

const unavailableRules = `
domain: shop
descriptors:
  - {key: open, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: strict, rate_limit: {unit: hour, requests_per_unit: 10, on_backend_failure: local_strict}}
  - {key: closed, rate_limit: {unit: hour, requests_per_unit: 10, on_backend_failure: fail_closed}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10, on_backend_failure: fail_closed}}
`

// away is a store that nobody can reach: by its contract, or by an error that breaks it.
type away struct{ err error }

func (s away) Take(_ context.Context, charges []store.Charge, out []store.Decision) error {
	for i := range charges {
		if errors.Is(s.err, store.ErrUnavailable) {
			out[i] = store.Unpaid(&charges[i])
		}
	}
	return s.err
}

func TestStoreAwayIsDecidedByTheFailureMode(t *testing.T) {
	t.Parallel()
	for _, err := range []error{store.ErrUnavailable, errors.New("something else")} {
		r := prometheus.NewRegistry()
		e := newEngine(t, unavailableRules, engine.Options{Store: away{err}, Registerer: r})
		for _, tt := range []struct {
			request string
			over    []bool
			nearest int
		}{
			{"shop | [open=x]", []bool{false}, -1}, // nothing is known of it
			{"shop | [strict=x]", []bool{true}, 0},
			{"shop | [closed=x]", []bool{true}, 0},
			{"shop | [open=x] [closed=x]", []bool{false, true}, 1},
			{"shop | [trial=x]", []bool{false}, -1},
		} {
			v := decide(t, e, tt.request)
			over := false
			for i, want := range tt.over {
				st := v.Statuses[i]
				if st.Over != want || !st.Unpaid || !st.HasLimit || st.Requests != 10 || st.Origin != store.Unavailable {
					t.Errorf("%s: status %d: got %+v, want over %v, unpaid", tt.request, i, st, want)
				}
				over = over || want
			}
			if v.Over != over || v.Nearest != tt.nearest {
				t.Errorf("%s: got over %v and nearest %d, want %v and %d", tt.request, v.Over, v.Nearest, over, tt.nearest)
			}
		}
		got := metrics(t, r)[`ratelimitd_decisions_total{domain="shop",origin="unavailable",rule="closed",verdict="over"}`]
		if got != "2" {
			t.Errorf("got %s decisions counted, want 2", got)
		}
	}
}
