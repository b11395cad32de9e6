package config

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience bounds every wait for something real; long, since a loaded machine is no failure.
const patience = 20 * time.Second

// eventually waits until something real has happened.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// watched is a fixture that follows files until its test ends.
type watched struct {
	*fixture
	files    *Files
	delivers atomic.Int64
}

func (w *watched) Run(ctx context.Context, deliver func(Update)) error {
	return w.files.Run(ctx, func(u Update) {
		w.delivers.Add(1) // before its effect can be seen
		deliver(u)
	})
}

// follow follows files that are there already, as a process does: reads them, and then watches.
func follow(t *testing.T, f *Files, o Options) *watched {
	t.Helper()
	w := &watched{fixture: newFixture(t, o), files: f}
	f.log = w.Live.log
	if err := w.Begin(f.Update()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Live.Run(ctx, w); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return w
}

// becomes waits for a limit of n, and checks that it came as the given version, by as many deliveries.
func (w *watched) becomes(n uint32, version int64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("a limit of %d", n), func() bool { return requests(w.Current()) == n && w.Status().LastOK })
	w.want(n, version, true)
}

// refuses waits until n versions have been refused, or more: on a loaded machine a file may be read while it is written.
func (w *watched) refuses(n int64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d refused versions", n), func() bool { return w.Status().Failures >= n })
}

// replace puts a version of the rules at path, in its place at once.
func replace(t *testing.T, path, content string) {
	t.Helper()
	write(t, path+".tmp", content)
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}
