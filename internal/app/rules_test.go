package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/xdstest"
)

// version returns which version of the rules a process has.
func version(t *testing.T, a *app.App) int {
	t.Helper()
	var st struct{ Version int }
	_, body := get(t, a.Addr("admin"), "/config")
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		t.Fatal(err)
	}
	return st.Version
}

// replace puts content in the place of the rules, and waits until they are current.
func replace(t *testing.T, a *app.App, path, content string) {
	t.Helper()
	before := version(t, a)
	writeFile(t, path+".new", content)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	a.Reload()
	eventually(t, "the next version is current", func() bool { return version(t, a) == before+1 })
}

// oneLimit are rules of one limit on api.
func oneLimit(limit string) string {
	return "domain: shop\ndescriptors:\n  - {key: api, rate_limit: {" + limit + "}}\n"
}

// take asks for hits of api, and returns the code and what remains.
func take(t *testing.T, conn *grpc.ClientConn, hits uint32) (rlsv3.RateLimitResponse_Code, uint32) {
	t.Helper()
	r := request("api", "x")
	r.HitsAddend = hits
	resp, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetOverallCode(), resp.GetStatuses()[0].GetLimitRemaining()
}

func wantTake(t *testing.T, conn *grpc.ClientConn, hits uint32, code rlsv3.RateLimitResponse_Code, remaining uint32) {
	t.Helper()
	if c, r := take(t, conn, hits); c != code || r != remaining {
		t.Errorf("%d hits: got %v with %d remaining, want %v with %d", hits, c, r, code, remaining)
	}
}

// C51: a limit that is lowered below what was spent refuses, with nothing remaining; raised again it has what is left, and
// what it refused was not spent.
func TestLimitLoweredC51(t *testing.T) {
	t.Parallel()
	limit := func(n int) string {
		return oneLimit(fmt.Sprintf("unit: hour, algorithm: fixed_window, requests_per_unit: %d", n))
	}
	o, _ := options(t, limit(100))
	a := start(t, o)
	conn := dial(t, a)
	wantTake(t, conn, 50, ok, 50)
	replace(t, a, o.Rules, limit(20))
	wantTake(t, conn, 1, over, 0)
	replace(t, a, o.Rules, limit(60))
	wantTake(t, conn, 1, ok, 9)
}

// C52: more generous rules deny nothing that the old ones had granted; smaller ones take what is too much.
func TestLimitChangedC52(t *testing.T) {
	t.Parallel()
	t.Run("faster", func(t *testing.T) {
		t.Parallel()
		limit := func(n int) string {
			return oneLimit(fmt.Sprintf("unit: second, unit_multiplier: 20, algorithm: gcra, requests_per_unit: %d, burst: 16", n))
		}
		o, _ := options(t, limit(10))
		a := start(t, o)
		conn := dial(t, a)
		wantTake(t, conn, 4, ok, 12)
		replace(t, a, o.Rules, limit(1000))
		if code, remaining := take(t, conn, 1); code != ok || remaining < 11 {
			t.Errorf("after the rate was raised: got %v with %d remaining, want OK with 11 or more", code, remaining)
		}
	})
	t.Run("smaller", func(t *testing.T) {
		t.Parallel()
		limit := func(n int) string { return oneLimit(fmt.Sprintf("unit: day, requests_per_unit: 100, burst: %d", n)) }
		o, _ := options(t, limit(100))
		a := start(t, o)
		conn := dial(t, a)
		wantTake(t, conn, 1, ok, 99)
		replace(t, a, o.Rules, limit(10))
		passed := 0
		for range 20 {
			if code, _ := take(t, conn, 1); code == ok {
				passed++
			}
		}
		if passed != 10 {
			t.Errorf("after the burst became 10: %d passed at once, want 10", passed)
		}
	})
}

// C49: decisions under load while rules change: none fails, each is of one version or the other, and nothing is left over.
func TestReloadUnderLoadC49(t *testing.T) {
	t.Parallel()
	const rate, reloads, workers = 2000, 50, 8
	limit := func(n int) string {
		return oneLimit(fmt.Sprintf("unit: hour, algorithm: fixed_window, requests_per_unit: %d", n))
	}
	o, _ := options(t, limit(100))
	a := start(t, o)
	conn := dial(t, a)
	client := rlsv3.NewRateLimitServiceClient(conn)

	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var seen [2]atomic.Int64 // answers by the one limit and the other
	for worker := range workers {
		load.Go(func() {
			tick := time.NewTicker(time.Second * workers / rate)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				resp, err := client.ShouldRateLimit(context.WithoutCancel(ctx), request("api", fmt.Sprint(worker, i/250)))
				if err != nil {
					t.Errorf("a decision failed: %v", err)
					return
				}
				s := resp.GetStatuses()[0]
				n, left := s.GetCurrentLimit().GetRequestsPerUnit(), s.GetLimitRemaining()
				if n != 100 && n != 200 || left >= n || s.GetCode() != resp.GetOverallCode() || (s.GetCode() == over) && left != 0 {
					t.Errorf("an answer of neither version: %v", resp)
					return
				}
				seen[n/100-1].Add(1)
			}
		})
	}
	eventually(t, "the load runs", func() bool { return seen[0].Load() > rate/10 })
	before := runtime.NumGoroutine()
	for i := range reloads {
		replace(t, a, o.Rules, limit(100*(2-i%2)))
	}
	// Other tests of this package run beside this one, and have goroutines of their own.
	eventually(t, "no more goroutines than before", func() bool { return runtime.NumGoroutine() <= before+reloads/2 })
	cancel()
	load.Wait()
	t.Logf("%d answers by the limit of 100, %d by that of 200", seen[0].Load(), seen[1].Load())
	if seen[0].Load() < 100 || seen[1].Load() < 100 {
		t.Errorf("answers by version: got %d and %d, want many of both", seen[0].Load(), seen[1].Load())
	}
	if got := version(t, a); got != reloads+1 {
		t.Errorf("version after %d reloads: got %d", reloads, got)
	}
}

// healthy reports how many of a process's three health checks say yes.
func healthy(t *testing.T, a *app.App, conn *grpc.ClientConn) (n int) {
	t.Helper()
	resp, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if resp.GetStatus() == healthv1.HealthCheckResponse_SERVING {
		n++
	}
	for _, path := range []string{"/readyz", "/healthcheck"} {
		if code, _ := get(t, a.Addr("http"), path); code == http.StatusOK {
			n++
		}
	}
	return n
}

// C54: without rules a process says so, and its calls fail for the proxy to decide; once there are rules it serves.
func TestStartBeforeRulesC54(t *testing.T) {
	t.Parallel()
	for _, force := range []bool{false, true} {
		t.Run(fmt.Sprintf("start without rules %t", force), func(t *testing.T) {
			t.Parallel()
			plane := xdstest.Start(t, "envoy-ratelimit", nil)
			o := fromControlPlane(t, plane)
			o.StartWithoutRules = force
			a := start(t, o)
			conn := dial(t, a)
			want := 0
			if force {
				want = 3
			}
			if got := healthy(t, a, conn); got != want {
				t.Errorf("before there are rules %d health checks say yes, want %d", got, want)
			}
			_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("api", "x"))
			if status.Code(err) != codes.Unavailable {
				t.Errorf("a call before there are rules: got %v, want UNAVAILABLE", err)
			}
			plane.Set(t, "1", xdstest.Limit("shop", "api", ratelimitv3.RateLimitUnit_HOUR, 1))
			eventually(t, "it serves", func() bool { return healthy(t, a, conn) == 3 && version(t, a) == 1 })
			wantCodes(t, conn, "api", "x", ok, over)
			a.Reload() // says why it does nothing
		})
	}
	t.Run("stopped before there are rules", func(t *testing.T) {
		t.Parallel()
		plane := xdstest.Start(t, "envoy-ratelimit", nil)
		a := start(t, fromControlPlane(t, plane))
		stop(t, a)
	})
	t.Run("with those of an earlier process", func(t *testing.T) {
		t.Parallel()
		plane := xdstest.Start(t, "envoy-ratelimit", nil)
		o := fromControlPlane(t, plane)
		o.StateDir = t.TempDir()
		plane.Set(t, "1", xdstest.Limit("shop", "api", ratelimitv3.RateLimitUnit_HOUR, 1))
		a := start(t, o)
		eventually(t, "there are rules", func() bool { return version(t, a) == 1 })
		stop(t, a)
		plane.Stop()
		began := time.Now()
		a = start(t, o)
		conn := dial(t, a)
		if healthy(t, a, conn) != 3 {
			t.Error("not serving, with the rules of an earlier process")
		}
		wantCodes(t, conn, "api", "x", ok, over)
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("served after %v, want at most 2s", d)
		}
	})
	t.Run("files that are bad", func(t *testing.T) {
		t.Parallel()
		o, _ := options(t, "domain: [")
		if _, err := app.New(o); err == nil || !strings.Contains(err.Error(), "load rules: ") {
			t.Errorf("bad rules at the start: got %v", err)
		}
		o.StartWithoutRules = true
		a := start(t, o)
		conn := dial(t, a)
		if healthy(t, a, conn) != 3 {
			t.Error("not serving, though it is to start without rules")
		}
		writeFile(t, o.Rules, rules)
		eventually(t, "there are rules", func() bool { return version(t, a) == 1 })
		wantCodes(t, conn, "api", "x", ok)
	})
}

// fromControlPlane are the options of a process that takes its rules from there.
func fromControlPlane(t *testing.T, plane *xdstest.ControlPlane) app.Options {
	o, _ := options(t, "")
	o.Rules, o.DefaultProfile = "", rule.Envoy
	o.XDS.Server, o.XDS.NodeID, o.XDS.MinBackoff = plane.Addr, "envoy-ratelimit", 10*time.Millisecond
	return o
}

// The reference's files, by its own words.
func TestReferenceFiles(t *testing.T) {
	t.Parallel()
	o, _ := options(t, "")
	o.Rules, o.DefaultProfile = "", rule.Envoy
	o.Reference = &config.ReferenceLayout{Root: t.TempDir(), Subdirectory: "ratelimit", AppDirectory: "config", IgnoreDotFiles: true}
	path := filepath.Join(o.Reference.Root, "ratelimit", "config", "shop")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, oneLimit("unit: hour, requests_per_unit: 1"))
	a := start(t, o)
	wantCodes(t, dial(t, a), "api", "x", ok, over)
	replace(t, a, path, oneLimit("unit: hour, requests_per_unit: 4"))
	wantCodes(t, dial(t, a), "api", "x", ok)
}

func TestOneOrigin(t *testing.T) {
	t.Parallel()
	o, _ := options(t, rules)
	o.XDS.Server, o.Reference = "127.0.0.1:1", &config.ReferenceLayout{}
	if _, err := app.New(o); err == nil || !strings.Contains(err.Error(), "--rules and --xds-server and RUNTIME_ROOT: want one origin of rules") {
		t.Errorf("three origins: got %v, want all of them named", err)
	}
}

// xdsMetrics is a page of metrics of a process that follows a control plane.
func xdsMetrics(t *testing.T) string {
	t.Helper()
	plane := xdstest.Start(t, "envoy-ratelimit", nil)
	plane.Set(t, "1", xdstest.Limit("shop", "api", ratelimitv3.RateLimitUnit_HOUR, 1))
	a := start(t, fromControlPlane(t, plane))
	eventually(t, "there are rules", func() bool { return version(t, a) == 1 })
	_, metrics := get(t, a.Addr("admin"), "/metrics")
	return metrics
}
