package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// C08, R8 and S17: a process on a Redis Cluster with a password. The limit that was fine is not charged when the other one
// denies, whichever slots they are in; a master that dies is said to be down until its replica has taken over; nothing
// tells the password.
func TestClusterC08(t *testing.T) {
	t.Parallel()
	const password = "canary-of-a-cluster"
	cluster := redistest.StartCluster(t, redistest.Setup{Password: password}, 3, 0, true)
	o, log := options(t, `
domain: shop
defaults: {algorithm: fixed_window}
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: site, rate_limit: {unit: year, requests_per_unit: 10}}
`)
	o.RedisURL, o.RedisTimeout = app.Secret(strings.Replace(cluster.URL(), "://", "://:"+password+"@", 1)), 200*time.Millisecond
	a := start(t, o)
	conn := dial(t, a)
	whole := func() bool {
		_, body := get(t, a.Addr("http"), "/readyz?verbose")
		return !strings.Contains(body, "degraded")
	}
	eventually(t, "a process that is not degraded", whole)

	client := rlsv3.NewRateLimitServiceClient(conn)
	both := func(user, site string) *rlsv3.RateLimitResponse {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r := request("user", user)
		r.Descriptors = append(r.Descriptors, &ratelimitv3.RateLimitDescriptor{
			Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "site", Value: site}},
		})
		resp, err := client.ShouldRateLimit(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for _, site := range []string{"a", "b", "c", "d", "e"} { // two slots, as good as always
		for i, want := range []rlsv3.RateLimitResponse_Code{ok, over, over, over} {
			resp := both("u-"+site, site)
			if got := resp.OverallCode; got != want {
				t.Errorf("site %s, request %d: got %v, want %v", site, i+1, got, want)
			}
			if got := resp.Statuses[1].LimitRemaining; got != 9 {
				t.Errorf("site %s, request %d: got %d left of the site, want 9", site, i+1, got)
			}
		}
	}

	cluster.Masters[2].Stop()
	redistest.Await(t, 20*time.Second, "a process that says it is degraded", func() bool {
		for _, site := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			ask(t, conn, "site", "dead-"+site)
		}
		_, body := get(t, a.Addr("http"), "/readyz?verbose")
		return strings.Contains(body, "degraded") && strings.Contains(body, "shard-")
	})
	redistest.Await(t, 30*time.Second, "the shard is back", whole)

	said := log.String()
	for _, path := range []string{"/metrics", "/rlconfig", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/cmdline"} {
		_, body := get(t, a.Addr("admin"), path)
		said += body
	}
	if strings.Contains(said, "canary") {
		t.Error("the password is shown")
	}
}
