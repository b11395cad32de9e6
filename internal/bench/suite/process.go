package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// children are the processes that the suite has started, and ends.
type children struct {
	dir   string // for their logs and sockets
	procs []*exec.Cmd
}

// start starts a program; its output goes to a log that is named in errors.
func (c *children) start(name string, env []string, argv ...string) (pid int, err error) {
	log, err := os.Create(c.log(name))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, c.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing is left behind if the suite is killed
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", name, err)
	}
	c.procs = append(c.procs, cmd)
	return cmd.Process.Pid, nil
}

func (c *children) log(name string) string {
	return filepath.Join(c.dir, strings.NewReplacer(" ", "-", "/", "-").Replace(name)+".log")
}

// stop ends what was started, the last first.
func (c *children) stop() {
	for _, cmd := range slices.Backward(c.procs) {
		c.end(cmd)
	}
	c.procs = nil
}

// end ends one: by its own way, and if that takes long, at once.
func (*children) end(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // how it ended tells nothing
	late.Stop()
}

// endPID ends one that was started, by its process id.
func (c *children) endPID(pid int) {
	for i, p := range c.procs {
		if p.Process.Pid == pid {
			c.end(p)
			c.procs = append(c.procs[:i], c.procs[i+1:]...)
			return
		}
	}
}

// freeAddr returns a loopback address on which nobody listens.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func freeAddrs(n int) ([]string, error) {
	addrs := make([]string, n)
	var errs []error
	for i := range addrs {
		var err error
		addrs[i], err = freeAddr()
		errs = append(errs, err)
	}
	return addrs, errors.Join(errs...)
}

// waitFor polls until a thing is so, for fifteen seconds.
func waitFor(ctx context.Context, what string, so func() bool) error {
	for deadline := time.Now().Add(15 * time.Second); !so(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within 15 s", what)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// answers reports whether somebody listens.
func answers(network, addr string) bool {
	c, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
