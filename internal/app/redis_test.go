package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// modes has a limit of each failure mode.
const modes = `
domain: shop
descriptors:
  - key: open
    rate_limit: {unit: hour, requests_per_unit: 1, on_backend_failure: fail_open}
  - key: closed
    rate_limit: {unit: hour, requests_per_unit: 1, on_backend_failure: fail_closed}
`

// C54: without Redis at the start the process serves by each limit's failure mode, and counts once Redis is there.
func TestStartBeforeRedisC54(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Stop()
	o, log := options(t, modes)
	o.RedisURL = app.Secret(redis.URL())
	o.RedisTimeout = 2 * time.Second // of a loaded machine; refused connections fail at once
	a := start(t, o)
	conn := dial(t, a)
	for _, path := range []string{"/healthcheck", "/readyz"} {
		if code, body := get(t, a.Addr("http"), path); code != 200 {
			t.Errorf("%s without Redis: got status %d, body %q, want 200", path, code, body)
		}
	}
	began := time.Now()
	wantCodes(t, conn, "open", "x", ok, ok, ok)
	wantCodes(t, conn, "closed", "x", over, over)
	if took := time.Since(began); took > time.Second {
		t.Errorf("five answers without Redis took %v", took)
	}
	eventually(t, "the log tells of Redis", func() bool {
		return strings.Contains(log.String(), "key secret cannot be read from Redis")
	})

	if _, metrics := get(t, a.Addr("admin"), "/metrics"); !strings.Contains(metrics, "\nratelimitd_app_key_secret_known 0\n") {
		t.Error("ratelimitd_app_key_secret_known is not 0")
	}

	redis.Restart()
	there := time.Now()
	// fail_closed admits only what was counted, so the first OK is Redis'.
	eventually(t, "decisions are made by Redis", func() bool { return ask(t, conn, "closed", "x") == ok })
	t.Logf("Redis was used %v after it had come", time.Since(there))
	wantCodes(t, conn, "closed", "x", over)
	wantCodes(t, conn, "open", "x", ok, over)
	if _, metrics := get(t, a.Addr("admin"), "/metrics"); !strings.Contains(metrics, "\nratelimitd_app_key_secret_known 1\n") {
		t.Error("ratelimitd_app_key_secret_known is not 1")
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
