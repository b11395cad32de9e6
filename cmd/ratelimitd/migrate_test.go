package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	configratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/xdstest"
)

// ports make a stand-in listen on free ports of loopback, and stop soon.
var ports = []string{
	"HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
	"LOG_FORMAT=json", "RATELIMITD_DRAIN_DELAY=50ms",
}

// standIn starts the program under the reference's name; arguments are ignored there.
func standIn(t *testing.T, environ ...string) *server {
	t.Helper()
	s := startProcess(t, append(ports, environ...), referenceName, "--quotaRateLimitServiceAddr=x", "version")
	return s
}

// overall asks once, with an entry of domain, and returns the answer.
func overall(t *testing.T, conn *grpc.ClientConn, domain, key string) (*rlsv3.RateLimitResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain:      domain,
		Descriptors: []*ratelimitv3.RateLimitDescriptor{{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: "x"}}}},
	})
}

// limitIs waits until an entry has a limit of so many requests.
func limitIs(t *testing.T, conn *grpc.ClientConn, domain, key string, want uint32) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := overall(t, conn, domain, key)
		if err == nil && resp.Statuses[0].CurrentLimit.GetRequestsPerUnit() == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s.%s: got %v, %v, want a limit of %d", domain, key, resp, err, want)
		}
	}
}

// volume is a ConfigMap as Kubernetes mounts it.
type volume struct {
	dir     string
	version int
}

// publish replaces all files at once.
func (v *volume) publish(t *testing.T, files map[string]string) {
	t.Helper()
	v.version++
	data := fmt.Sprintf("..%d", v.version)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(v.dir, data), 0o755))
	for name, text := range files {
		must(os.WriteFile(filepath.Join(v.dir, data, name), []byte(text), 0o644))
	}
	must(os.Symlink(data, filepath.Join(v.dir, "..tmp")))
	must(os.Rename(filepath.Join(v.dir, "..tmp"), filepath.Join(v.dir, "..data")))
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
}

func hourly(domain string, requests int) string {
	return fmt.Sprintf("domain: %s\ndescriptors: [{key: api, rate_limit: {unit: hour, requests_per_unit: %d}}]\n", domain, requests)
}

// Istio's sample: its variables, a ConfigMap at /data/ratelimit/config, and Redis.
func TestIstioEnvironment(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	root := t.TempDir()
	rules := &volume{dir: filepath.Join(root, "ratelimit", "config")}
	rules.publish(t, map[string]string{"config.yaml": hourly("ratelimit", 2)})
	s := standIn(t, "LOG_LEVEL=debug", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr, "USE_STATSD=false",
		"RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true")
	s.await(t, "key secret read from Redis")
	if line := s.await(t, "variables of the reference service"); !strings.Contains(line, `"names":"USE_STATSD"`) || !strings.Contains(line, `"level":"info"`) || !strings.Contains(line, `"@timestamp"`) {
		t.Errorf("got log line %q", line)
	}
	conn := dialServer(t, s.GRPC)
	for i, want := range []rlsv3.RateLimitResponse_Code{rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT} {
		resp, err := overall(t, conn, "ratelimit", "api")
		if err != nil || resp.OverallCode != want {
			t.Fatalf("call %d: got %v, %v, want %v", i+1, resp, err, want)
		}
		if len(resp.ResponseHeadersToAdd) > 0 || len(resp.RawBody) > 0 {
			t.Errorf("got headers %v and body %q, want none, as the reference", resp.ResponseHeadersToAdd, resp.RawBody)
		}
	}
	if keys, err := redis.Client().Keys(t.Context(), "rl1:{*").Result(); err != nil || len(keys) == 0 {
		t.Errorf("got keys %v in Redis, %v, want the bucket's", keys, err)
	}
	resp, err := http.Get("http://" + s.HTTP + "/healthcheck")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/healthcheck: got %s", resp.Status)
	}

	rules.publish(t, map[string]string{"config.yaml": hourly("ratelimit", 5)})
	limitIs(t, conn, "ratelimit", "api", 5)

	// SIGHUP, which ends the reference, has the files read; SIGTERM drains.
	s.signal(t, syscall.SIGHUP)
	limitIs(t, conn, "ratelimit", "api", 5)
	s.signal(t, syscall.SIGTERM)
	if err := s.ended(t); err != nil {
		t.Errorf("ended by %v, want exit code 0", err)
	}
}

// Plain Envoy with files in the default layout: the whole root is a link that is replaced.
func TestPlainEnvironment(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root := filepath.Join(base, "current")
	publish := func(version string, requests int) {
		t.Helper()
		dir := filepath.Join(base, version, "ratelimit")
		if err := os.MkdirAll(filepath.Join(dir, "config"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"config/a.yaml": hourly("shop", requests), "config/b": hourly("other", requests), "not-config.yaml": "no rules: [",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(version, root+".tmp"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(root+".tmp", root); err != nil {
			t.Fatal(err)
		}
	}
	publish("v1", 2)
	s := standIn(t, "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "SHADOW_MODE=true", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_LIMIT_HEADER=X-Limit")
	s.await(t, "REDIS_URL is not set")
	conn := dialServer(t, s.GRPC)
	for range 4 {
		resp, err := overall(t, conn, "shop", "api")
		if err != nil || resp.OverallCode != rlsv3.RateLimitResponse_OK {
			t.Fatalf("got %v, %v, want OK in shadow", resp, err)
		}
		if h := resp.ResponseHeadersToAdd; len(h) != 3 || h[0].Key != "X-Limit" {
			t.Errorf("got headers %v, want the reference's three", h)
		}
	}
	limitIs(t, conn, "other", "api", 2)
	publish("v2", 7)
	limitIs(t, conn, "shop", "api", 7)
}

// Envoy Gateway: exactly its variables, certificates in one directory, rules from its control plane by mutual TLS. There
// is no /data, and before the first rules health says yes.
func TestEnvoyGatewayEnvironment(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	ours := certtest.New(t)
	gateway, certs := ours.Issue(t, certtest.Leaf{DNSNames: []string{"envoy-gateway"}}), ours.Issue(t, certtest.Leaf{DNSNames: []string{"envoy-ratelimit"}})
	shown, err := tls.LoadX509KeyPair(gateway.CertFile, gateway.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	plane := xdstest.Start(t, "envoy-ratelimit", &tls.Config{
		Certificates: []tls.Certificate{shown}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool,
	})
	s := standIn(t, "RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW",
		"CONFIG_GRPC_XDS_SERVER_URL="+plane.Addr, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+certs.CertFile, "GRPC_SERVER_TLS_KEY="+certs.KeyFile, "GRPC_SERVER_TLS_CA_CERT="+ours.File,
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+certs.CertFile, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+certs.KeyFile,
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+ours.File, "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr, "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:19001",
		"PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml")
	resp, err := http.Get("http://" + s.HTTP + "/healthcheck")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/healthcheck before the first rules: got %s, want 200", resp.Status)
	}
	// Envoy shows no certificate here, though GRPC_SERVER_TLS_CA_CERT is set.
	conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: ours.Pool, MaxVersion: tls.VersionTLS12})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if resp, err := overall(t, conn, "default/eg/http", "api"); err == nil {
		t.Errorf("before the first rules: got %v, want an error", resp)
	}
	plane.Set(t, "1", xdstest.Limit("default/eg/http", "api", configratelimitv3.RateLimitUnit_HOUR, 3))
	limitIs(t, conn, "default/eg/http", "api", 3)
	plane.Set(t, "2", xdstest.Limit("default/eg/http", "api", configratelimitv3.RateLimitUnit_MONTH, 9))
	limitIs(t, conn, "default/eg/http", "api", 9)
}

// AI Gateway: a control plane in plain text, an argument that nobody knows.
func TestAIGatewayEnvironment(t *testing.T) {
	t.Parallel()
	plane := xdstest.Start(t, "envoy-ai-gateway-ratelimit", nil)
	quota := xdstest.Limit("ai-gateway-quota", "api", configratelimitv3.RateLimitUnit_HOUR, 1)
	quota.Descriptors[0].QuotaMode = true
	plane.Set(t, "1", quota)
	s := standIn(t, "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+plane.Addr, "CONFIG_GRPC_XDS_NODE_ID=envoy-ai-gateway-ratelimit",
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "USE_STATSD=false", "LOG_LEVEL=debug", "REDIS_SOCKET_TYPE=tcp", "GRPC_PORT=0")
	conn := dialServer(t, s.GRPC)
	limitIs(t, conn, "ai-gateway-quota", "api", 1) // which spends it
	if resp, err := overall(t, conn, "ai-gateway-quota", "api"); err != nil || resp.OverallCode != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("got %v, %v, want OVER_LIMIT: the only quota is spent", resp, err)
	}
}

// What is wrong ends the start, before anything is opened, and names the variable.
func TestStandInRefuses(t *testing.T) {
	t.Parallel()
	for environ, want := range map[string]string{
		"CONFIG_TYPE=nonsense":                         `CONFIG_TYPE: "nonsense"`,
		"BACKEND_TYPE=memcache":                        `BACKEND_TYPE: "memcache"`,
		"RUNTIME_ROOT=/nowhere RUNTIME_SUBDIRECTORY=x": "/nowhere",
	} {
		cmd := exec.CommandContext(t.Context(), referenceName, "--help")
		cmd.Env = append(append(os.Environ(), ports...), strings.Fields(environ)...)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), want) {
			t.Errorf("%s: got %v and %q, want %q", environ, err, out, want)
		}
	}
}
