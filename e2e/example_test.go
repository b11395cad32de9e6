package e2e_test

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The rules that newcomers start from have nothing that `check` would warn of.
func TestShippedRulesHaveNoFindings(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	check := exec.Command(program, "check", "../examples/rules")
	check.Stderr = &stderr
	if out, err := check.Output(); err != nil || stderr.Len() > 0 || !strings.Contains(string(out), "shop.path_/login.remote_address") {
		t.Errorf("check: %v\n%s%s", err, out, stderr.String())
	}
}

// The example that we ship is run as it is, but for its ports, and its timeout since this machine may be busy.
func TestShippedExample(t *testing.T) {
	t.Parallel()
	s, backend := servePath(t, "../examples/rules"), newUpstream(t)
	text, err := os.ReadFile("../examples/envoy/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	socket := func(addr string) string {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		return "{address: " + host + ", port_value: " + port + "}"
	}
	config := string(text)
	for old, replacement := range map[string]string{
		socket("127.0.0.1:9901"):  socket("127.0.0.1:0"),
		socket("127.0.0.1:10000"): socket("127.0.0.1:0"),
		socket("127.0.0.1:9000"):  socket(backend.addr),
		socket("127.0.0.1:8081"):  socket(s.grpc),
		"timeout: 0.05s":          "timeout: 10s",
	} {
		if n := strings.Count(config, old); n != 1 {
			t.Fatalf("got %q %d times in the example, want once", old, n)
		}
		config = strings.Replace(config, old, replacement, 1)
	}
	proxy := startEnvoy(t, config)

	proxy.wantCodes(t, []int{200, 200, 200, 429}, "/login")
	wantHeaders(t, proxy.get(t, "/login"), map[string]string{
		"Ratelimit-Policy":  `"login";q=3;w=60`,
		"X-Ratelimit-Limit": `3, 3;w=60;name="login"`,
		"Content-Type":      "application/problem+json",
	})

	// A free user has 10 at once; on a slow machine one more comes back while the test runs, and another, never 20.
	free := proxy.codes(t, 20, "/", "x-tier: free", "x-user: ann")
	if diff := cmp.Diff([]int{200, 200, 200, 200, 200, 200, 200, 200, 200, 200}, free[:10]); diff != "" {
		t.Errorf("a free user's burst (-want +got):\n%s", diff)
	}
	if !slices.Contains(free[10:], 429) {
		t.Errorf("a free user's 20 requests: got %v, want some refused", free)
	}
	pro := proxy.get(t, "/", "x-tier: pro", "x-user: ann")
	if pro.code != 200 {
		t.Errorf("a pro user: got %d, want 200", pro.code)
	}
	wantHeaders(t, pro, map[string]string{"Ratelimit-Policy": `"pro-second";q=50;w=1`})
	proxy.wantCodes(t, []int{200, 200, 200}, "/search")
	proxy.wantCodes(t, []int{200}, "/anything")
}
