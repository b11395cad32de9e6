package app_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/app"
)

// Every test must stop what it starts: whatever still runs at the end fails them all.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something real; long, since a loaded machine is no failure.
const patience = 20 * time.Second

// rules limits api to 2 an hour, and queue to one call in two seconds of which 20 may wait.
const rules = `
domain: shop
descriptors:
  - key: api
    rate_limit: {name: api, unit: hour, requests_per_unit: 2}
  - key: queue
    rate_limit: {unit: minute, requests_per_unit: 30, algorithm: leaky_bucket, burst: 20, max_delay: 60s}
`

// logBuffer keeps log lines that several goroutines write.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// options are those of a process on free ports with the given rules, and its log.
func options(t *testing.T, rules string) (app.Options, *logBuffer) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, path, rules)
	log := new(logBuffer)
	return app.Options{
		Build:     app.Build{Version: "test", Revision: "none"},
		Rules:     path,
		GRPCAddr:  "127.0.0.1:0",
		HTTPAddr:  "127.0.0.1:0",
		AdminAddr: "127.0.0.1:0",
		Logger:    slog.New(slog.NewJSONHandler(log, nil)),
	}, log
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// start serves o until the test ends.
func start(t *testing.T, o app.Options) *app.App {
	t.Helper()
	a, err := app.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, a) })
	return a
}

func stop(t *testing.T, a *app.App) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// dial returns a client of a's gRPC port.
func dial(t *testing.T, a *app.App) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(a.Addr("grpc").String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// request asks for one descriptor of one entry.
func request(key, value string) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: value}},
	}}}
}

// ask returns the overall code of one call.
func ask(t *testing.T, conn *grpc.ClientConn, key, value string) rlsv3.RateLimitResponse_Code {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request(key, value))
	if err != nil {
		t.Fatalf("ask %s=%s: %v", key, value, err)
	}
	return resp.OverallCode
}

const (
	ok   = rlsv3.RateLimitResponse_OK
	over = rlsv3.RateLimitResponse_OVER_LIMIT
)

// wantCodes asks once for each wanted code.
func wantCodes(t *testing.T, conn *grpc.ClientConn, key, value string, want ...rlsv3.RateLimitResponse_Code) {
	t.Helper()
	for i, w := range want {
		if got := ask(t, conn, key, value); got != w {
			t.Errorf("%s=%s, call %d: got %v, want %v", key, value, i+1, got, w)
		}
	}
}

// get returns status and body of a page.
func get(t *testing.T, addr net.Addr, path string) (int, string) {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr.String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// eventually polls until something real has happened.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v", what, patience)
		case <-tick.C:
		}
	}
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
		{"admin port by name", func(o *app.Options) { o.AdminAddr = "example.org:0" }, `--admin-addr: "example.org:0" can be reached`},
		{"short secret", func(o *app.Options) { o.KeySecret = "short" }, "--key-secret-file: key secret of 5 bytes: must be at least 16"},
		{"negative delay", func(o *app.Options) { o.DrainDelay = -1 }, "--drain-delay: -1ns: want 0 or more"},
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
