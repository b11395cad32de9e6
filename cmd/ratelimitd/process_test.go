package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// server is one ratelimitd in a process of its own.
type server struct {
	cmd               *exec.Cmd
	GRPC, HTTP, Admin string        // addresses
	spoke             chan struct{} // a value after every line, unless one waits already
	done              chan struct{} // closed when the process has ended
	err               error         // how it ended, once done is closed

	mu  sync.Mutex
	log strings.Builder
}

// startServer serves rules on free ports until the test ends; it waits until the ports are open.
func startServer(t *testing.T, rules string, flags ...string) *server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	return startProcess(t, nil, append([]string{"ratelimitd", "serve", "--rules", path}, append(freePorts(), flags...)...)...)
}

// freePorts are flags of serve.
func freePorts() []string {
	return []string{"--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}
}

// startProcess runs a command line that serves, with more variables in its environment, until the test ends; it waits
// until the ports are open.
func startProcess(t *testing.T, environ []string, args ...string) *server {
	t.Helper()
	s := &server{cmd: exec.Command(args[0], args[1:]...), spoke: make(chan struct{}, 1), done: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), environ...)
	// A test binary that dies runs no cleanup; its children must not outlive it.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		scanner := bufio.NewScanner(stderr)
		for scanner.Scan() {
			s.mu.Lock()
			s.log.WriteString(scanner.Text() + "\n")
			s.mu.Unlock()
			select {
			case s.spoke <- struct{}{}:
			default:
			}
		}
		s.err = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.done
		if t.Failed() {
			t.Logf("log of %v:\n%s", args, s.said())
		}
	})
	line := s.await(t, "serving")
	var ports struct{ GRPC, HTTP, Admin string }
	if err := json.Unmarshal([]byte(line), &ports); err != nil {
		t.Fatalf("log line %q: %v", line, err)
	}
	s.GRPC, s.HTTP, s.Admin = ports.GRPC, ports.HTTP, ports.Admin
	return s
}

func (s *server) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// await waits for a log line whose message begins so, be it said already, and returns it.
func (s *server) await(t *testing.T, msg string) string {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		for line := range strings.Lines(s.said()) {
			if strings.Contains(line, `"msg":"`+msg) || strings.Contains(line, `"@message":"`+msg) {
				return line
			}
		}
		select {
		case <-s.spoke:
		case <-s.done:
			t.Fatalf("the process has ended (%v) without saying %q:\n%s", s.err, msg, s.said())
		case <-deadline.C:
			t.Fatalf("no %q within %v:\n%s", msg, patience, s.said())
		}
	}
}

func (s *server) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// ended waits for the process and returns how it ended.
func (s *server) ended(t *testing.T) error {
	t.Helper()
	select {
	case <-s.done:
		return s.err
	case <-time.After(patience):
		t.Fatalf("still running after %v:\n%s", patience, s.said())
		return nil
	}
}

// dialServer returns a connection that ends with the test.
func dialServer(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

const oneRule = "domain: shop\ndescriptors: [{key: api, rate_limit: {algorithm: fixed_window, unit: hour, requests_per_unit: 500}}]\n"

// The first signal drains; a second ends the process at once.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t, oneRule, "--drain-delay", "1h")
	s.signal(t, syscall.SIGTERM)
	s.await(t, "draining")
	began := time.Now()
	s.signal(t, syscall.SIGTERM)
	err := s.ended(t)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitFailure {
		t.Errorf("ended by %v, want exit code %d", err, exitFailure)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// A drain ends with exit code 0, and in its time.
func TestSignalDrains(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := startServer(t, oneRule, "--drain-delay", "50ms")
		s.signal(t, sig)
		if err := s.ended(t); err != nil {
			t.Errorf("%v: ended by %v, want exit code 0", sig, err)
		}
	}
}
