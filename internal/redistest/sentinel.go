package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name of the master as Sentinels know it.
const MasterName = "main"

// Sentinels are a master, its replicas and the Sentinels that watch them: a master that is gone for a second is replaced,
// about two seconds after it went. Made by StartSentinels.
type Sentinels struct {
	Servers   []*Server // the first is the master at the start, the rest its replicas
	Sentinels []*Server
}

// StartSentinels starts a master, replicas and Sentinels, and returns once they all know each other. password is the
// Sentinels' own; "" for none.
func StartSentinels(t testing.TB, setup Setup, replicas, sentinels int, password string, args ...string) *Sentinels {
	t.Helper()
	master := StartWith(t, setup, args...)
	s := &Sentinels{Servers: []*Server{master}}
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	for range replicas {
		s.Servers = append(s.Servers, StartWith(t, setup, append(args, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")...))
	}
	conf := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s %[4]d\nsentinel down-after-milliseconds %[1]s 1000\nsentinel failover-timeout %[1]s 4000\n",
		MasterName, host, port, sentinels/2+1)
	if setup.Password != "" {
		conf += fmt.Sprintf("sentinel auth-pass %s %s\n", MasterName, setup.Password)
	}
	if password != "" {
		conf += "sentinel sentinel-pass " + password + "\n"
	}
	own := setup
	own.Password = password
	for range sentinels {
		s.Sentinels = append(s.Sentinels, startSentinel(t, own, conf))
	}
	Await(t, 20*time.Second, "replicas that are up to date", func() bool {
		return strings.Count(master.Client().Info(t.Context(), "replication").Val(), "state=online") == replicas
	})
	for _, w := range s.Sentinels {
		Await(t, 20*time.Second, "a sentinel that knows the others", func() bool {
			state := redis.NewMapStringStringCmd(t.Context(), "sentinel", "master", MasterName)
			_ = w.Client().Process(t.Context(), state)
			return state.Val()["num-slaves"] == fmt.Sprint(replicas) && state.Val()["num-other-sentinels"] == fmt.Sprint(sentinels-1) &&
				state.Val()["flags"] == "master"
		})
	}
	return s
}

func startSentinel(t testing.TB, setup Setup, conf string) *Server {
	t.Helper()
	s := &Server{t: t, setup: setup, dir: t.TempDir(), Addr: freeAddr(t), args: []string{"--sentinel"}}
	s.conf = filepath.Join(s.dir, "sentinel.conf")
	t.Cleanup(s.close)
	if err := os.WriteFile(s.conf, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Addrs returns the Sentinels' addresses, as a URL has them.
func (s *Sentinels) Addrs() string { return addrs(s.Sentinels) }

// URL returns redis-sentinel://main@host:port,….
func (s *Sentinels) URL() string { return "redis-sentinel://" + MasterName + "@" + s.Addrs() }

func addrs(servers []*Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr)
	}
	return strings.Join(all, ",")
}
