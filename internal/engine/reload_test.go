package engine_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "", engine.Options{Snapshots: new(snapshots)})
	for _, tt := range []struct {
		request *engine.Request
		want    error
	}{
		{&engine.Request{}, engine.ErrEmptyDomain},
		{&engine.Request{Domain: "shop"}, engine.ErrNoDescriptors},
		{parse(t, "shop | [a=b]"), engine.ErrNoRules},
	} {
		if err := e.Decide(t.Context(), tt.request, new(engine.Verdict)); !errors.Is(err, tt.want) {
			t.Errorf("%+v: got %v, want %v", tt.request, err, tt.want)
		}
		if _, err := e.Explain(t.Context(), tt.request); !errors.Is(err, tt.want) {
			t.Errorf("explain %+v: got %v, want %v", tt.request, err, tt.want)
		}
	}
	for _, o := range []engine.Options{{}, {Snapshots: new(snapshots)}} {
		if _, err := engine.New(o); err == nil {
			t.Errorf("New(%+v): got no error", o)
		}
	}
}

// Rules swapped under load: every answer is of one of the two sets, whole, and the one that was loaded before a request
// began, or a later one.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	const yaml = `
domain: shop
defaults: {algorithm: fixed_window}
descriptors:
  - {key: a, rate_limit: {name: n%[1]d, unit: year, requests_per_unit: %[1]d}}
  - {key: b, rate_limit: {name: n%[1]d, unit: year, requests_per_unit: %[1]d}}
  - {key: only%[1]d, rate_limit: {unit: year, requests_per_unit: %[1]d}}
`
	sets := []*rule.Snapshot{loadRules(t, fmt.Sprintf(yaml, 100_000_000)), loadRules(t, fmt.Sprintf(yaml, 200_000_000))}
	s := new(snapshots)
	s.Store(sets[0])
	r := prometheus.NewRegistry()
	e := newEngine(t, "", engine.Options{Snapshots: s, Registerer: r})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			req, v := parse(t, "shop | [a=x] [b=x] [only100000000=x]L5/second"), new(engine.Verdict)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := e.Decide(t.Context(), req, v); err != nil {
					t.Error(err)
					return
				}
				if a, b := v.Statuses[0], v.Statuses[1]; a.Requests != b.Requests || a.Name != fmt.Sprintf("n%d", a.Requests) {
					t.Errorf("got %d and %d, %s: an answer of two sets", a.Requests, b.Requests, a.Name)
					return
				}
			}
		})
	}
	for i := range 200 {
		s.Store(sets[i%2])
		if got, want := decide(t, e, "shop | [a=y]").Statuses[0].Requests, uint32(100_000_000*(i%2+1)); got != want {
			t.Errorf("got a limit of %d after loading %d", got, want)
		}
		if i%20 == 0 {
			metrics(t, r)
		}
	}
	close(stop)
	wg.Wait()
	// The rule of the set before is gone from the metrics, too.
	if _, ok := metrics(t, r)[`ratelimitd_hits_total{domain="shop",limit="year",rule="only100000000"}`]; ok {
		t.Error("a rule that is gone is still counted")
	}
}
