package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Two instances are restarted one after the other under load. Envoy checks their health, the one that is going says
// so first and keeps answering until Envoy has heard it: no call is lost, and so no request is refused, although Envoy
// was told to refuse whatever it could not have decided.
func TestRollingRestartLosesNoCall(t *testing.T) {
	t.Parallel()
	const rules = `
domain: e2e
descriptors:
  - {key: user, rate_limit: {requests_per_unit: 1000000, unit: second}}
`
	// Longer than Envoy's health interval and the second within which it merges updates (update_merge_window).
	const drain = "--drain-delay=3s"
	first, second := serve(t, rules, drain), serve(t, rules, drain)
	backend := newUpstream(t)
	proxy := newEnvoy(t, envoySetup{
		Domain: "e2e", Services: []string{first.grpc, second.grpc}, Upstream: backend.addr, Filter: "failure_mode_deny: true",
		Routes: perUser,
	})
	proxy.eventually(t, "Envoy has both", func() bool { return proxy.healthy(t) == 2 })

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	const workers = 4
	refused := make(chan string, workers) // the first from each; a worker ends with it
	sent := make([]int, workers)
	for i := range workers {
		clients.Go(func() {
			// About 200 requests a second each: load enough to meet a gap of some milliseconds, and bounded.
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
				}
				a, err := fetch("http://"+proxy.addr+"/", fmt.Sprintf("x-user: %d", i))
				if err != nil || a.code != http.StatusOK {
					refused <- fmt.Sprintf("request %d: got %d %q (%v), want 200", sent[i], a.code, a.body, err)
					return
				}
				sent[i]++
			}
		})
	}
	for _, s := range []*service{first, second} {
		s.end(t)
		if got := proxy.healthy(t); got != 1 {
			t.Errorf("got %d healthy instances at Envoy after one ended, want 1", got)
		}
		s.restart(t)
		proxy.eventually(t, "Envoy has both again", func() bool { return proxy.healthy(t) == 2 })
	}
	stop()
	clients.Wait()
	close(refused)
	for message := range refused {
		t.Error(message)
	}
	for i, n := range sent {
		if n < 100 {
			t.Errorf("worker %d sent %d requests, too few to say anything", i, n)
		}
	}
	if got := proxy.stat(t, "cluster.upstream.ratelimit.error"); got != 0 {
		t.Errorf("got %d calls lost at Envoy, want 0", got)
	}
}
