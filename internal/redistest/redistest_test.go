package redistest

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStart(t *testing.T) {
	t.Parallel()
	s := Start(t, "--maxmemory", "1mb")
	got, err := s.Client().ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil {
		t.Fatal(err)
	}
	if got["maxmemory"] != "1048576" {
		t.Errorf("maxmemory: got %q, want %q", got["maxmemory"], "1048576")
	}
	host, _, err := net.SplitHostPort(s.Addr)
	if err != nil || host != "127.0.0.1" {
		t.Errorf("address: got %q, want one on loopback", s.Addr)
	}
}

func TestStartWithPassword(t *testing.T) {
	t.Parallel()
	s := Start(t, "--requirepass", "secret")
	if err := s.Client().Ping(t.Context()).Err(); err == nil {
		t.Error("ping without the password: got no error, want NOAUTH")
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	s := &Server{t: t, args: []string{"--no-such-option"}, dir: t.TempDir(), Addr: freeAddr(t)}
	if err := s.start(); err == nil {
		s.Stop()
		t.Error("an unknown option: got no error, want one")
	}
}

func TestRestartIsEmpty(t *testing.T) {
	t.Parallel()
	s := Start(t)
	if err := s.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	addr := s.Addr
	s.Restart()
	if s.Addr != addr {
		t.Errorf("address after a restart: got %q, want %q", s.Addr, addr)
	}
	n, err := s.Client().DBSize(t.Context()).Result()
	if err != nil || n != 0 {
		t.Errorf("keys after a restart: got %d (%v), want 0", n, err)
	}
}

func TestStopTwice(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Stop()
	s.Stop()
	if c, err := net.Dial("tcp", s.Addr); err == nil {
		_ = c.Close()
		t.Error("dial after Stop: got a connection, want none")
	}
}

func TestSignal(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Signal(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err) // the kernel accepts for a stopped process
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a stopped server answered")
	}
	s.Signal(syscall.SIGCONT)
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Errorf("ping after SIGCONT: %v", err)
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		Start(b).Stop()
	}
}

func TestStartSentinels(t *testing.T) {
	t.Parallel()
	s := StartSentinels(t, Setup{}, 1, 3, "")
	got, err := s.Sentinels[2].Client().Do(t.Context(), "sentinel", "get-master-addr-by-name", MasterName).StringSlice()
	if err != nil {
		t.Fatal(err)
	}
	if addr := net.JoinHostPort(got[0], got[1]); addr != s.Servers[0].Addr {
		t.Errorf("master: got %s, want %s", addr, s.Servers[0].Addr)
	}
}

func TestStartCluster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Setup{}, 3, 0, true)
	//nolint:staticcheck // what clients ask
	slots, err := c.Replicas[1].Client().ClusterSlots(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(slots) != 3 || len(slots[0].Nodes) != 2 {
		t.Errorf("slots: got %+v, want three ranges of a master and a replica", slots)
	}
}

func TestStartTLS(t *testing.T) {
	t.Parallel()
	s := StartWith(t, Setup{Certs: NewCerts(t), Mutual: true, Password: "secret"})
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	plain := &Server{Addr: s.Addr, t: t}
	defer plain.close()
	if err := plain.Client().Ping(t.Context()).Err(); err == nil {
		t.Error("ping without TLS: got no error, want one")
	}
}
