package app_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/internal/app"
)

// Every test must stop what it starts: whatever still runs at the end fails them all.
func TestMain(m *testing.M) {
	// go-redis tries a server that is away once a second, and only then sees that its client was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

func TestServesAllPorts(t *testing.T) {
	t.Parallel()
	o, log := options(t, rules)
	a := start(t, o)
	wantCodes(t, dial(t, a), "api", "x", ok, ok, over)

	resp, err := http.Post("http://"+a.Addr("http").String()+"/json", "application/json",
		strings.NewReader(`{"domain":"shop","descriptors":[{"entries":[{"key":"api","value":"x"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("/json for a value that is over: got status %d, want 429", resp.StatusCode)
	}
	for _, path := range []string{"/healthcheck", "/readyz"} {
		if code, body := get(t, a.Addr("http"), path); code != http.StatusOK {
			t.Errorf("%s: got status %d, body %q, want 200", path, code, body)
		}
	}
	if !strings.Contains(log.String(), `"msg":"serving"`) {
		t.Errorf("the log does not say that it serves:\n%s", log)
	}
	if a.Addr("ftp") != nil {
		t.Errorf("unknown port: got address %v, want nil", a.Addr("ftp"))
	}
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	t.Run("stop twice", func(t *testing.T) {
		t.Parallel()
		o, _ := options(t, rules)
		a := start(t, o)
		stop(t, a)
		stop(t, a)
	})
	t.Run("stop before start", func(t *testing.T) {
		t.Parallel()
		o, _ := options(t, rules)
		a, err := app.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if a.Addr("grpc") != nil {
			t.Error("an address before the start")
		}
		stop(t, a)
		if err := a.Start(t.Context()); err == nil {
			t.Error("start after stop: got no error")
		}
	})
	t.Run("start twice", func(t *testing.T) {
		t.Parallel()
		o, _ := options(t, rules)
		a := start(t, o)
		if err := a.Start(t.Context()); err == nil {
			t.Error("second start: got no error")
		}
		wantCodes(t, dial(t, a), "api", "x", ok) // the first goes on
	})
	t.Run("two in one process", func(t *testing.T) {
		t.Parallel()
		o1, _ := options(t, rules)
		o2, _ := options(t, rules)
		one, two := start(t, o1), start(t, o2)
		wantCodes(t, dial(t, one), "api", "x", ok, ok, over)
		wantCodes(t, dial(t, two), "api", "x", ok, ok, over) // with buckets of its own
	})
	t.Run("stop with calls waiting in a queue", func(t *testing.T) {
		t.Parallel()
		o, _ := options(t, rules)
		a := start(t, o)
		conn := dial(t, a)
		wantCodes(t, conn, "queue", "x", ok)
		answered := make(chan error, 1)
		go func() {
			_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("queue", "x"))
			answered <- err
		}()
		eventually(t, "the call is in the queue", func() bool {
			_, metrics := get(t, a.Addr("admin"), "/metrics")
			return sample(metrics, "ratelimitd_queue_waiters") == 1
		})
		stop(t, a)
		if err := <-answered; err != nil {
			t.Errorf("the waiting call: got %v, want an answer", err)
		}
	})
}

// C78a: a port that is taken is an error, not shared traffic; and nothing of the failed process stays.
func TestPortInUseC78(t *testing.T) {
	t.Parallel()
	for flag, set := range map[string]func(*app.Options, string){
		"--grpc-addr":  func(o *app.Options, addr string) { o.GRPCAddr = addr },
		"--http-addr":  func(o *app.Options, addr string) { o.HTTPAddr = addr },
		"--admin-addr": func(o *app.Options, addr string) { o.AdminAddr = addr },
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			first, _ := options(t, rules)
			a := start(t, first)
			for _, name := range []string{"grpc", "http", "admin"} {
				taken := a.Addr(name).String()
				o, _ := options(t, rules)
				set(&o, taken)
				b, err := app.New(o)
				if err != nil {
					t.Fatal(err)
				}
				err = b.Start(t.Context())
				if err == nil || !strings.Contains(err.Error(), flag+` "`+taken+`": `) || !strings.Contains(err.Error(), "address already in use") {
					t.Errorf("got %v, want an error that names %s and %s", err, flag, taken)
				}
			}
			wantCodes(t, dial(t, a), "api", "x", ok)
		})
	}
}

// What a failed start had taken before is free again.
func TestFailedStartFreesPorts(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	o, _ := options(t, rules)
	o.GRPCAddr, o.AdminAddr = addr, addr // the second is taken by the first
	a, err := app.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err == nil {
		t.Fatal("one address for two ports: got no error")
	}
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the address is still taken: %v", err)
	}
	again.Close()
}

func TestNewRefusesBadOptions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*app.Options)
		want   string
	}{
		{"no rules", func(o *app.Options) { o.Rules = "" }, "--rules: want a file or a directory of rules"},
		{"missing rules", func(o *app.Options) { o.Rules = "/nowhere" }, "no such file or directory"},
		{"open admin port", func(o *app.Options) { o.AdminAddr = ":0" }, `--admin-addr: ":0" can be reached from other machines`},
		{"admin port without a port", func(o *app.Options) { o.AdminAddr = "127.0.0.1" }, "--admin-addr: address 127.0.0.1: missing port"},
		{"admin port without a number", func(o *app.Options) { o.AdminAddr = "127.0.0.1:x-y" }, "--admin-addr: "},
		{"admin port on a socket", func(o *app.Options) { o.AdminAddr = "unix:///tmp/admin" }, "--admin-addr: "},
		{"gRPC port beyond the last", func(o *app.Options) { o.GRPCAddr = "127.0.0.1:65536" }, "--grpc-addr: address 65536: invalid port"},
		{"admin port by name", func(o *app.Options) { o.AdminAddr = "example.org:0" }, `--admin-addr: "example.org:0" can be reached`},
		{"short secret", func(o *app.Options) { o.KeySecret = "short" }, "--key-secret-file: key secret of 5 bytes: must be at least 16"},
		{"negative delay", func(o *app.Options) { o.DrainDelay = -1 }, "--drain-delay: -1ns: want 0 or more"},
		{"negative nodes", func(o *app.Options) { o.Nodes = -1 }, "--nodes: -1: want 0 or more"},
		{"negative buckets", func(o *app.Options) { o.MaxBuckets = -1 }, "--max-buckets: -1: want 0 or more"},
		{"Redis URL", func(o *app.Options) { o.RedisURL = "127.0.0.1:6379" }, "redis url: want redis://"},
		{"trace protocol", func(o *app.Options) { o.Tracing.Protocol = 99 }, "trace protocol 99: unknown"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o, _ := options(t, rules)
			test.change(&o)
			a, err := app.New(o)
			if err == nil {
				stop(t, a)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
	t.Run("all at once", func(t *testing.T) {
		t.Parallel()
		_, err := app.New(app.Options{AdminAddr: "0.0.0.0:1", StopTimeout: -1})
		for _, flag := range []string{"--rules", "--admin-addr", "--stop-timeout"} {
			if err == nil || !strings.Contains(err.Error(), flag) {
				t.Errorf("got %v, want %s in it", err, flag)
			}
		}
	})
	t.Run("admin port by the name of loopback", func(t *testing.T) {
		t.Parallel()
		o, _ := options(t, rules)
		o.AdminAddr = "localhost:0"
		start(t, o)
	})
	t.Run("open admin port on purpose", func(t *testing.T) {
		t.Parallel()
		o, _ := options(t, rules)
		o.AdminAddr, o.AdminRemote = ":0", true
		start(t, o)
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	o, log := options(t, rules)
	hangups := make(chan os.Signal)
	o.Reload = hangups
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, o) }()
	eventually(t, "it serves", func() bool { return strings.Contains(log.String(), `"msg":"serving"`) })

	writeFile(t, o.Rules, "domain: [")
	hangups <- os.Interrupt // any value will do
	eventually(t, "a bad version is refused", func() bool {
		return strings.Contains(log.String(), "the last good rules stay")
	})
	writeFile(t, o.Rules, rules+"\n# changed\n")
	hangups <- os.Interrupt
	eventually(t, "a good version is loaded", func() bool { return strings.Contains(log.String(), `"version":2`) })

	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("run: got %v, want nil", err)
		}
	case <-time.After(patience):
		t.Fatal("run does not end")
	}
	if err := app.Run(t.Context(), app.Options{}); err == nil {
		t.Error("run without options: got no error")
	}
	o.GRPCAddr = "256.0.0.1:0"
	if err := app.Run(t.Context(), o); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("run on an address that cannot be: got %v, want why", err)
	}
}
