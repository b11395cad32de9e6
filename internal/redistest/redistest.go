// Package redistest runs a real redis-server for a test: on loopback, on a free port, without persistence, gone when
// the test ends. It hides how the process is found, started, awaited and ended.
//
// It is for tests only. It does not fake anything: what a test learns here holds for Redis.
package redistest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// startTimeout is generous: a server starts in some 20 ms, but tests share the machine with each other.
	startTimeout = 10 * time.Second
	// startAttempts bounds how often another process may take the port between its choice and its use.
	startAttempts = 10
)

// Server is a running redis-server. Made by Start. Its methods may be called from several goroutines, but for Stop and
// Restart.
type Server struct {
	Addr string // host:port on loopback; kept by Restart

	t      testing.TB
	args   []string
	setup  Setup
	conf   string // file to start from; "" for none
	dir    string
	proc   *process
	mu     sync.Mutex // guards client
	client *redis.Client
}

// Start runs redis-server with args added to its command line ("--maxmemory", "1mb") and returns once it answers, some
// 20 ms later. The server ends with the test. A missing redis-server fails the test.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartWith(t, Setup{}, args...)
}

// Setup says who may connect to a server, and how. The zero value is anybody, without TLS.
type Setup struct {
	Password string // of the user default, which administers; "" for none
	Certs    *Certs // TLS, and no port without; nil for none
	Mutual   bool   // clients must present a certificate
}

// StartWith is Start for a server that not everybody may connect to.
func StartWith(t testing.TB, setup Setup, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, args: args, setup: setup, dir: t.TempDir()}
	t.Cleanup(s.close)
	var err error
	for range startAttempts {
		s.Addr = freeAddr(t)
		if err = s.start(); !errors.Is(err, errExited) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// URL returns redis://host:port/0.
func (s *Server) URL() string { return "redis://" + s.Addr + "/0" }

// Client returns a client of the server that may do anything, the same at every call, with go-redis's own defaults. It
// closes with the test.
func (s *Server) Client() *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		s.client = redis.NewClient(&redis.Options{Addr: s.Addr, Password: s.setup.Password, TLSConfig: s.setup.Certs.client()})
	}
	return s.client
}

// Signal sends sig to the process: SIGSTOP makes a server that hangs.
func (s *Server) Signal(sig os.Signal) {
	s.t.Helper()
	if err := s.proc.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal redis-server: %v", err)
	}
}

// Stop ends the process at once, as a crash would, and waits for it. A second call does nothing.
func (s *Server) Stop() {
	if s.proc != nil {
		s.proc.kill()
	}
}

// Restart ends the process if it still runs and starts an empty server at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) close() {
	s.mu.Lock()
	if s.client != nil {
		_ = s.client.Close() // its connections are of no interest any more
	}
	s.mu.Unlock()
	s.Stop()
}

// errExited is a server that ended before it answered: most likely its port was taken meanwhile.
var errExited = errors.New("redis-server ended before it answered")

// start runs the process at s.Addr and waits until it answers.
func (s *Server) start() error {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	args := []string{
		"--bind", host, "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}
	if s.conf != "" {
		args = append([]string{s.conf}, args...)
	}
	args = append(args, s.setup.args(port)...)
	s.proc, err = run(append(args, s.args...))
	if err != nil {
		return err
	}
	if err := s.await(); err != nil {
		s.proc.kill()
		return err
	}
	return nil
}

// await polls until our own process answers at the address; any reply will do, an error such as NOAUTH too.
func (s *Server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	last := errors.New("no attempt")
	err := poll(ctx, func() (bool, error) {
		select {
		case <-s.proc.done:
			return false, errExited
		default:
		}
		last = s.ping()
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last, errors.New(strings.TrimSpace(s.proc.output())))
	}
	return nil
}

// ping asks the server for its process: PING alone would be answered by a stranger that took the port.
func (s *Server) ping() error {
	conn, err := s.setup.dial(s.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\nINFO server\r\n")); err != nil {
		return err
	}
	want := []byte("process_id:" + strconv.Itoa(s.proc.cmd.Process.Pid) + "\r\n")
	var reply []byte
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		reply = append(reply, buf[:n]...)
		switch {
		case bytes.Contains(reply, want), bytes.HasPrefix(reply, []byte("-NOAUTH")):
			return nil
		case err != nil:
			return err // a stranger's answer ends in a timeout
		}
	}
}

// poll calls ready every millisecond until it is true or errs, or ctx ends.
func poll(ctx context.Context, ready func() (bool, error)) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Await polls until ready is true, and fails the test if that takes longer than within: for what a real process does in
// its own time.
func Await(t testing.TB, within time.Duration, what string, ready func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := poll(ctx, func() (bool, error) { return ready(), nil }); err != nil {
		t.Fatalf("%s: not within %v", what, within)
	}
}

// freeAddr returns an address on loopback that nobody listened at a moment ago.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// process is a redis-server process.
type process struct {
	cmd  *exec.Cmd
	out  bytes.Buffer  // what it printed; read after done only
	done chan struct{} // closed when it has ended
}

// run starts redis-server.
func run(args []string) (*process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("redis-server not found: install it with apt-get install redis-server")
	}
	p := &process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	dieWithParent(p.cmd)
	started := make(chan error)
	go func() {
		// The kernel ties the child's life to this thread, not to this process: the thread must stay as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // it ends by a signal, which is not worth reporting
			close(p.done)
		}
	}()
	return p, <-started
}

// kill ends the process and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // the only error is that it has ended already
	<-p.done
}

// output returns what the process printed, once it has ended.
func (p *process) output() string {
	select {
	case <-p.done:
		return p.out.String()
	default:
		return ""
	}
}
