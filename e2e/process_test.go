package e2e_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for another process; it is long since two cores may be shared with other tests.
const patience = 30 * time.Second

// A process is a program that a test started. It ends with the test, and its output is shown if the test failed.
type process struct {
	cmd    *exec.Cmd
	output *buffer
	done   chan struct{} // closed when it has ended
	err    error         // how it ended; readable once done is closed
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), output: new(buffer), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	// A test binary that dies (a panic, -timeout) runs no cleanup; its children must not outlive it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		if p.running() {
			p.end(t)
		}
		if t.Failed() {
			t.Logf("output of %s:\n%s", filepath.Base(name), p.output)
		}
	})
	return p
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("signal %v: %v", s, err)
	}
}

// end asks the process to end as an orchestrator would, and demands that it does so in time and without an error.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.done:
		if p.err != nil {
			t.Errorf("%s after SIGTERM: %v", filepath.Base(p.cmd.Path), p.err)
		}
	case <-time.After(patience):
		t.Errorf("%s still runs %v after SIGTERM", filepath.Base(p.cmd.Path), patience)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// eventually waits until ready says so, and fails the test if p ends first or patience does.
func (p *process) eventually(t *testing.T, what string, ready func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-p.done:
			t.Fatalf("%s ended (%v) before: %s\n%s", filepath.Base(p.cmd.Path), p.err, what, p.output)
		case <-deadline:
			t.Fatalf("not within %v: %s\n%s", patience, what, p.output)
		}
	}
}

// A buffer is a bytes.Buffer that a process writes while a test reads.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
