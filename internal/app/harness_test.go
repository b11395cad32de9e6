package app_test

import (
	"context"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/app"
)

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
	return read(t, resp, err)
}

// read returns status and body of an answer.
func read(t *testing.T, resp *http.Response, err error) (int, string) {
	t.Helper()
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
