package app_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// modes has a limit of each failure mode.
const modes = `
domain: shop
descriptors:
  - key: open
    rate_limit: {name: open, unit: hour, requests_per_unit: 2, on_backend_failure: fail_open}
  - key: strict
    rate_limit: {name: strict, unit: hour, requests_per_unit: 20, on_backend_failure: local_strict}
  - key: closed
    rate_limit: {name: closed, unit: hour, requests_per_unit: 2, on_backend_failure: fail_closed}
`

// C54, R16: without Redis at the start the process is ready, answers each limit by its failure mode at once, and says
// that it is degraded. It uses Redis soon after it appears, whether it has to learn the key secret there first or a
// breaker has backed off.
func TestStartBeforeRedisC54(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]app.Secret{"secret in Redis": "", "secret of its own": "sixteen bytes ok"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			redis.Stop()
			o, log := options(t, modes)
			o.RedisURL, o.KeySecret = app.Secret(redis.URL()), secret
			o.RedisTimeout = 2 * time.Second // of a loaded machine; refused connections fail at once
			began := time.Now()
			a := start(t, o)
			conn := dial(t, a)
			for _, path := range []string{"/healthcheck", "/readyz"} {
				if code, body := get(t, a.Addr("http"), path); code != 200 {
					t.Errorf("%s without Redis: got status %d, body %q, want 200", path, code, body)
				}
			}
			wantServing(t, conn)
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("ready after %v, want 2s", took)
			}
			first := time.Now()
			wantCodes(t, conn, "open", "x", ok)
			t.Logf("ready after %v, first answer in %v", first.Sub(began), time.Since(first))
			wantCodes(t, conn, "open", "x", ok, over)          // it is the only node, as far as it knows
			wantCodes(t, conn, "strict", "x", ok, ok, over)    // a tenth
			wantCodes(t, conn, "closed", "x", over, over)      // none
			if took := time.Since(first); took > time.Second { // of two, for one that waits for Redis
				t.Errorf("eight answers without Redis took %v", took)
			}

			// Nothing is asked of Redis before the secret is known, so it is no breaker that says so then.
			why := "degraded: Redis has not been reached yet"
			if secret != "" {
				why = `degraded: store shard "redis" is down`
				for range 30 {
					ask(t, conn, "open", "y")
				}
			}
			eventually(t, "/readyz?verbose says "+why, func() bool {
				code, body := get(t, a.Addr("http"), "/readyz?verbose")
				return code == 200 && strings.Contains(body, why)
			})
			eventually(t, "the breaker has backed off", func() bool { return time.Since(began) > 3*time.Second })
			if _, metrics := get(t, a.Addr("admin"), "/metrics"); sample(metrics, `ratelimitd_limiter_degraded{mode="fail_closed"}`) != 1 {
				t.Error("no metric says degraded")
			}

			redis.Restart()
			there := time.Now()
			// fail_closed admits only what was counted, so the first OK is Redis'.
			eventually(t, "decisions are made by Redis", func() bool { return ask(t, conn, "closed", "x") == ok })
			took := time.Since(there)
			t.Logf("Redis was used %v after it had come", took)
			if took > 5*time.Second { // two, where nothing else runs
				t.Errorf("Redis was used %v after it had come", took)
			}
			wantCodes(t, conn, "closed", "x", ok, over)
			wantCodes(t, conn, "strict", "x", ok, ok, ok)
			wantServing(t, conn)
			if code, body := get(t, a.Addr("http"), "/readyz?verbose"); code != 200 || strings.Contains(body, "degraded") {
				t.Errorf("/readyz?verbose with Redis: got status %d, body %q, want nothing degraded", code, body)
			}
			if said := log.String(); secret == "" && !strings.Contains(said, "key secret cannot be read from Redis") {
				t.Errorf("the log does not tell of Redis:\n%s", said)
			}
		})
	}
}

// wantServing wants all three names of the health service to say SERVING.
func wantServing(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	for _, name := range []string{"", "ratelimit", "liveness"} {
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: got %v, %v, want SERVING", name, resp.GetStatus(), err)
		}
	}
}

// Two processes on one Redis share buckets; one with a key secret of its own does not.
func TestProcessesShareBuckets(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	process := func(secret string) *app.App {
		o, log := options(t, rules)
		o.RedisURL, o.RedisTimeout, o.KeySecret = app.Secret(redis.URL()), 2*time.Second, app.Secret(secret)
		a := start(t, o)
		if secret == "" {
			eventually(t, "the key secret is known", func() bool { return strings.Contains(log.String(), "key secret read from Redis") })
		}
		return a
	}
	one, two := dial(t, process("")), dial(t, process(""))
	wantCodes(t, one, "api", "x", ok)
	wantCodes(t, two, "api", "x", ok, over)
	wantCodes(t, one, "api", "x", over)

	own, same := dial(t, process("sixteen bytes ok")), dial(t, process("sixteen bytes ok"))
	wantCodes(t, own, "api", "x", ok)
	wantCodes(t, same, "api", "x", ok, over)
}

// S17: a password is in nothing that the process says.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	const password, secret = "hunter2-canary", "canary-of-a-key-secret"
	redis := redistest.Start(t, "--requirepass", password)
	for name, url := range map[string]string{
		"right": "redis://:" + password + "@" + redis.Addr + "/0",
		"wrong": "redis://user-canary:" + password + "@127.0.0.1:1/0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, log := options(t, rules)
			o.RedisURL, o.RedisTimeout, o.KeySecret = app.Secret(url), 2*time.Second, secret
			a := start(t, o)
			conn := dial(t, a)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request("api", "x")); err != nil {
				t.Fatal(err)
			}
			said := log.String()
			for _, path := range []string{
				"/", "/metrics", "/rlconfig", "/config", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap?debug=1",
				"/debug/pprof/goroutine?debug=2",
			} {
				_, body := get(t, a.Addr("admin"), path)
				said += body
			}
			for _, canary := range []string{password, secret, "user-canary"} {
				if strings.Contains(said, canary) {
					t.Errorf("%q is shown", canary)
				}
			}
		})
	}
	o, _ := options(t, rules)
	o.RedisURL = "redis://:" + password + "@%zz"
	if a, err := app.New(o); err == nil {
		stop(t, a)
		t.Error("a bad URL: got no error")
	} else if strings.Contains(err.Error(), password) {
		t.Errorf("the password is in the error: %v", err)
	}
}

// Processes count themselves in Redis, and one that stops is missed at once.
func TestProcessesCountThemselves(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var all []*app.App
	for range 3 {
		o, _ := options(t, modes)
		o.RedisURL, o.RedisTimeout = app.Secret(redis.URL()), 2*time.Second
		all = append(all, start(t, o))
	}
	nodes := func(want float64) {
		t.Helper()
		for i, a := range all {
			eventually(t, "nodes are counted", func() bool {
				_, metrics := get(t, a.Addr("admin"), "/metrics")
				got := sample(metrics, "ratelimitd_limiter_nodes")
				if sample(metrics, "ratelimitd_limiter_nodes_known") != 1 && got > 1 {
					t.Errorf("process %d: got %v nodes that are not known", i, got)
				}
				return got == want
			})
		}
	}
	nodes(3)
	stop(t, all[0])
	all = all[1:]
	began := time.Now()
	nodes(2)
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("missed a process that stopped after %v, want the 3s of a pulse: it did not say that it leaves", took)
	}
	// Without Redis the last number counts.
	redis.Stop()
	conn := dial(t, all[0])
	wantCodes(t, conn, "open", "new", ok, over) // a half of 2
	nodes(2)
}

// A process stops in its time, whatever Redis does.
func TestStopWhileRedisHangs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	o, log := options(t, modes)
	o.RedisURL = app.Secret(redis.URL())
	a := start(t, o)
	eventually(t, "the key secret is known", func() bool { return strings.Contains(log.String(), "key secret read from Redis") })
	redis.Signal(syscall.SIGSTOP)
	defer redis.Signal(syscall.SIGCONT)
	conn := dial(t, a)
	for range 50 {
		ask(t, conn, "open", "x")
	}
	began := time.Now()
	stop(t, a) // wants no error
	// A read of what people have set that was under way when Redis hung has its own time, and may be tried again.
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("stopped after %v, want the second that Redis is given to hear of it, and what a read may take", took)
	}
}
