package redisstore_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// oddPassword has every character that a URL gives a meaning to.
const oddPassword = "canary@:/#%?&,[]"

// What docs/redis.md tells operators to grant besides, for a database by number, and in a Cluster.
var (
	databasePermissions = []any{"+select"}
	clusterPermissions  = []any{"+cluster|slots", "+asking"}
	sentinelPermissions = []any{"-@all", "+sentinel|get-master-addr-by-name", "+sentinel|master"}
)

// permit makes the user of docs/redis.md on a server.
func permit(t testing.TB, server *redistest.Server, name, password string, more ...any) {
	t.Helper()
	args := append([]any{"acl", "setuser", name, "reset", "on", ">" + password, "~rl1:*"}, permissions...)
	args = append(args, more...)
	if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestC74 connects in every way: what is at the addresses, TLS, who it is that connects, and the Sentinels' own password.
func TestC74(t *testing.T) {
	t.Parallel()
	certs := redistest.NewCerts(t)
	for _, topology := range []string{"redis", "redis-sentinel", "redis-cluster"} {
		for _, security := range []string{"plain", "TLS", "mTLS"} {
			for _, who := range []string{"nobody", "password", "user"} {
				for _, guarded := range []bool{false, true} {
					if guarded && topology != "redis-sentinel" {
						continue
					}
					name := fmt.Sprintf("%s/%s/%s/sentinel password %v", topology, security, who, guarded)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						connect(t, certs, topology, security, who, guarded)
					})
				}
			}
		}
	}
}

// connect starts one of them and takes charges, as the user of docs/redis.md where there is a user.
func connect(t *testing.T, certs *redistest.Certs, topology, security, who string, guarded bool) {
	var setup redistest.Setup
	o := redisconn.Options{}
	if security != "plain" {
		setup.Certs, o.CAFile = certs, certs.CAFile
	}
	if security == "mTLS" {
		setup.Mutual = true
		o.CertFile, o.KeyFile = certs.CertFile, certs.KeyFile
	}
	userinfo := ""
	switch who {
	case "password":
		setup.Password = oddPassword
		userinfo = ":" + url.QueryEscape(oddPassword) + "@"
	case "user":
		setup.Password = "of the administrator"
		userinfo = "limiter:" + url.QueryEscape(oddPassword) + "@"
	}
	var servers []*redistest.Server
	more := databasePermissions
	switch topology {
	case "redis":
		server := redistest.StartWith(t, setup)
		servers = []*redistest.Server{server}
		o.URL = "redis://" + userinfo + server.Addr + "/1"
	case "redis-sentinel":
		password, query := "", ""
		if guarded {
			password, query = "canary-of-sentinels", "?sentinel_password=canary-of-sentinels"
		}
		if setup.Password != "" { // what is told in a file of its own must not be cut there
			setup.Password = strings.NewReplacer("#", "", " ", "-").Replace(setup.Password)
			if who == "password" {
				userinfo = ":" + url.QueryEscape(setup.Password) + "@"
			}
		}
		s := redistest.StartSentinels(t, setup, 0, 1, password)
		servers = s.Servers
		if guarded && who == "user" {
			query = "?sentinel_username=asker&sentinel_password=" + url.QueryEscape(oddPassword)
			args := append([]any{"acl", "setuser", "asker", "on", ">" + oddPassword}, sentinelPermissions...)
			if err := s.Sentinels[0].Client().Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		o.URL = "redis-sentinel://" + userinfo + redistest.MasterName + "@" + s.Addrs() + "/1" + query
	case "redis-cluster":
		c := redistest.StartCluster(t, setup, 1, 0, false)
		servers, more = c.Masters, clusterPermissions
		o.URL = "redis-cluster://" + userinfo + c.Masters[0].Addr
	}
	if who == "user" {
		for _, server := range servers {
			permit(t, server, "limiter", oddPassword, more...)
		}
	}
	var log journal
	metrics := prometheus.NewRegistry()
	// Without a certificate that is asked for, or the right password, an error says so, and no secret.
	wrong := o
	wrong.URL = strings.Replace(wrong.URL, "canary", "canary-of-old", 1)
	wrong.CAFile, wrong.CertFile, wrong.KeyFile = "", "", ""
	if who != "nobody" || security != "plain" {
		_, err := takeBy(t, wrong, &log, metrics, 0)
		if err == nil {
			t.Error("wrong credentials: got no error, want one")
		}
		wantNoSecret(t, fmt.Sprint(err), log.String())
	}
	s, err := takeBy(t, o, &log, prometheus.NewRegistry(), 10*time.Second)
	if err != nil {
		t.Fatalf("got error %v, want none", err)
	}
	if _, err := s.Secret(t.Context()); err != nil {
		t.Error(err)
	}
	wantNodes(t, "alone", s, 1)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	wantNoSecret(t, log.String(), page.Body.String(), fmt.Sprintf("%v %+v %#v", s, s, s))
}

// takeBy takes a charge through a store that is reached as o says.
func takeBy(t *testing.T, o redisconn.Options, log *journal, metrics prometheus.Registerer, within time.Duration) (*redisstore.Store, error) {
	t.Helper()
	r, err := redisconn.New(o)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = r.Close() })
	s := open(t, redisstore.Options{Redis: r, Timeout: 2 * time.Second, Registerer: metrics, Logger: slog.New(slog.NewJSONHandler(log, nil))})
	charges := []store.Charge{
		charge(t, "a", bucket.Config{Hits: 10, Unit: bucket.Year}), charge(t, "b", bucket.Config{Hits: 10, Unit: bucket.Year}),
	}
	// The first may come before the master is known.
	for until := time.Now().Add(within); ; {
		err = s.Take(t.Context(), charges, make([]store.Decision, len(charges)))
		runtime.Gosched()
		if err == nil || time.Now().After(until) || !strings.Contains(err.Error(), "no master is known") {
			return s, err
		}
	}
}

// journal is what was logged, to be read while more is.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func wantNoSecret(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(text, "canary") {
			t.Errorf("got a password in %q", text)
		}
	}
}

// TestRotation rotates a password and a certificate: the next connection uses them, and nobody restarts.
func TestRotation(t *testing.T) {
	t.Parallel()
	certs := redistest.NewCerts(t)
	server := redistest.StartWith(t, redistest.Setup{Password: "admin", Certs: certs, Mutual: true})
	dir := t.TempDir()
	o := redisconn.Options{
		URL: "rediss://" + server.Addr, UsernameFile: filepath.Join(dir, "user"), PasswordFile: filepath.Join(dir, "password"),
		CAFile: certs.CAFile, CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"),
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(o.UsernameFile, "limiter\n")
	write(o.PasswordFile, "canary-1\n")
	certs.Issue(t, o.CertFile, o.KeyFile)
	permit(t, server, "limiter", "canary-1")
	r, err := redisconn.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var log journal
	s := open(t, redisstore.Options{Redis: r, Timeout: patient, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	c := charge(t, "a", bucket.Config{Hits: 1000, Unit: bucket.Year})
	take(t, s, c)

	// Both passwords hold for a while, as they should when a password is rotated; then the old one is taken away, and with
	// it the connections.
	acl := func(args ...any) {
		t.Helper()
		if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	acl("acl", "setuser", "limiter", ">canary-2")
	take(t, s, c)
	write(o.PasswordFile, "canary-2\n")
	certs.Issue(t, o.CertFile, o.KeyFile)
	acl("acl", "setuser", "limiter", "<canary-1")
	take(t, s, c) // connections that are there stay
	acl("client", "kill", "user", "limiter")
	out := make([]store.Decision, 1)
	redistest.Await(t, 10*time.Second, "charges under the new password", func() bool {
		return s.Take(t.Context(), []store.Charge{c}, out) == nil
	})

	// A password that comes before its time fails new connections only.
	write(o.PasswordFile, "canary-3\n")
	take(t, s, c)
	acl("client", "kill", "user", "limiter")
	redistest.Await(t, 10*time.Second, "a refusal", func() bool {
		return s.Take(t.Context(), []store.Charge{c}, out) != nil
	})
	acl("acl", "setuser", "limiter", ">canary-3")
	redistest.Await(t, 10*time.Second, "charges under the third password", func() bool {
		return s.Take(t.Context(), []store.Charge{c}, out) == nil
	})
	wantNoSecret(t, log.String())
}
