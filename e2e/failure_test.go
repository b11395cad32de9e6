package e2e_test

import (
	"net/http"
	"syscall"
	"testing"
)

// What a client sees while no ratelimitd can be asked is Envoy's choice, by route if need be.
func TestServiceGone(t *testing.T) {
	t.Parallel()
	const rules = `
domain: e2e
descriptors:
  - {key: user, rate_limit: {algorithm: sliding_log, requests_per_unit: 1, unit: hour}}
`
	for name, c := range map[string]struct {
		filter string
		want   int
	}{
		"open":   {"failure_mode_deny: false", http.StatusOK},
		"closed": {"failure_mode_deny: true\nstatus_on_error: {code: ServiceUnavailable}", http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, setup{rules: rules, filter: c.filter})
			if got := s.get(t, "/", "x-user: ann").code; got != http.StatusOK {
				t.Fatalf("before: got %d, want 200", got)
			}
			if got := s.get(t, "/", "x-user: ann").code; got != http.StatusTooManyRequests {
				t.Fatalf("before, over the limit: got %d, want 429", got)
			}
			s.service.signal(t, syscall.SIGKILL)
			<-s.service.done
			if got := s.get(t, "/", "x-user: ann").code; got != c.want {
				t.Errorf("without the service: got %d, want %d", got, c.want)
			}
			s.service.restart(t)
			s.eventually(t, "Envoy finds the service again", func() bool {
				// A new process has an empty memory, and a limit of 1 still.
				s.get(t, "/", "x-user: bob")
				return s.get(t, "/", "x-user: bob").code == http.StatusTooManyRequests
			})
		})
	}
}
