package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// program is the path of the ratelimitd that TestMain built.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "ratelimitd-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "ratelimitd")
	args := append([]string{"build", "-o", program}, raceFlag...)
	build := exec.Command("go", append(args, "github.com/ratelimitd/ratelimitd/cmd/ratelimitd")...)
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build ratelimitd:", err)
	} else {
		code = m.Run()
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// A service is a running ratelimitd.
type service struct {
	*process
	grpc, http, admin string // its addresses
	args              []string
}

// serve starts ratelimitd on rules and waits until it is ready. More flags follow those that name rules and ports.
func serve(t *testing.T, rules string, flags ...string) *service {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return servePath(t, file, flags...)
}

func servePath(t *testing.T, rules string, flags ...string) *service {
	t.Helper()
	ip := ownLoopback()
	s := &service{grpc: freePort(t, ip), http: freePort(t, ip), admin: freePort(t, ip)}
	s.args = append([]string{"serve", "--rules", rules, "--grpc-addr", s.grpc, "--http-addr", s.http, "--admin-addr", s.admin,
		// Long before a busy machine is taken for a store that is gone.
		"--redis-timeout", "5s", "--drain-delay", "0s"}, flags...)
	s.restart(t)
	return s
}

// restart starts the service again with the same arguments on the same ports; the one before must have ended.
func (s *service) restart(t *testing.T) {
	t.Helper()
	s.process = start(t, program, s.args...)
	s.eventually(t, "ratelimitd is ready", func() bool {
		answer, err := fetch("http://" + s.http + "/readyz")
		return err == nil && answer.code == http.StatusOK
	})
}

var loopbacks atomic.Uint32

// ownLoopback returns an address of the loopback range that this test alone uses. On it a port that is free stays
// free until its owner takes it, and while its owner restarts, whatever else runs on this machine.
func ownLoopback() string {
	pid, n := os.Getpid(), loopbacks.Add(1)
	return net.IPv4(127, byte(1+pid%250), byte(pid/250%250), byte(1+n%250)).String()
}

func freePort(t *testing.T, ip string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// An upstream is the backend that Envoy protects: it counts what reaches it and answers with the header X-Tokens as
// the query asks.
type upstream struct {
	addr string
	hits atomic.Int64
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := new(upstream)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.hits.Add(1)
		if tokens := r.URL.Query().Get("tokens"); tokens != "" {
			w.Header().Set("X-Tokens", tokens)
		}
		fmt.Fprint(w, "from upstream")
	}))
	t.Cleanup(server.Close)
	u.addr = server.Listener.Addr().String()
	return u
}

// A stack is a client's whole way: Envoy, one ratelimitd, and the upstream behind them.
type stack struct {
	*envoy
	service  *service
	upstream *upstream
}

// A setup says what a stack is made of; domain is always "e2e".
type setup struct {
	rules  string   // a rules file
	routes string   // Envoy's routes; "": perUser
	filter string   // more fields of Envoy's rate limit filter
	flags  []string // of ratelimitd serve
}

// perUser is a route for everything, which asks about the header X-User as the entry "user".
const perUser = `- match: {prefix: /}
  route:
    cluster: upstream
    rate_limits: [{actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]}]
`

func newStack(t *testing.T, s setup) *stack {
	t.Helper()
	if s.routes == "" {
		s.routes = perUser
	}
	st := &stack{service: serve(t, s.rules, s.flags...), upstream: newUpstream(t)}
	st.envoy = newEnvoy(t, envoySetup{
		Domain: "e2e", Services: []string{st.service.grpc}, Upstream: st.upstream.addr, Routes: s.routes, Filter: s.filter,
	})
	return st
}

// onEachStore runs a test on each of the two places where buckets live, for each with the flags of serve that say so: what
// clients see must be the same.
func onEachStore(t *testing.T, test func(t *testing.T, flags []string)) {
	t.Helper()
	for name, flags := range map[string]func(t *testing.T) []string{
		"memory": func(*testing.T) []string { return nil },
		"redis":  func(t *testing.T) []string { return []string{"--redis-url", redistest.Start(t).URL()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, flags(t))
		})
	}
}

// reached demands that want requests came through to the upstream so far.
func (s *stack) reached(t *testing.T, want int64) {
	t.Helper()
	if got := s.upstream.hits.Load(); got != want {
		t.Errorf("got %d requests at the upstream, want %d", got, want)
	}
}

func seconds(t *testing.T, value string) int {
	t.Helper()
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("got %q, want whole seconds", value)
	}
	return n
}
