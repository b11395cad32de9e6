package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCleanupRunsBackwardsAndJoinsErrors(t *testing.T) {
	t.Parallel()
	var c cleanup
	var ran []string
	broken := errors.New("broken")
	c.add("store", func(context.Context) error { ran = append(ran, "store"); return broken })
	c.add("port", func(context.Context) error { ran = append(ran, "port"); return nil })
	c.add("server", func(context.Context) error { ran = append(ran, "server"); return broken })
	err := c.run(t.Context(), slog.New(slog.DiscardHandler))
	if diff := cmp.Diff([]string{"server", "port", "store"}, ran); diff != "" {
		t.Errorf("wrong order (-want +got):\n%s", diff)
	}
	if want := "server: broken\nstore: broken"; err == nil || err.Error() != want || !errors.Is(err, broken) {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := c.run(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("second run: got %v, want nothing left to do", err)
	}
}

// A step that never ends costs a second past the deadline, and the rest still runs.
func TestCleanupLeavesBusyStepsBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c cleanup
		release := make(chan struct{})
		ran := false
		c.add("store", func(context.Context) error { ran = true; return nil })
		c.add("stuck", func(context.Context) error { <-release; return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		err := c.run(ctx, slog.New(slog.DiscardHandler))
		if took := time.Since(start); took != 6*time.Second {
			t.Errorf("took %v, want 6s", took)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "stuck: still busy after its deadline") {
			t.Errorf("got %v, want an error that names the step", err)
		}
		if !ran {
			t.Error("the step below the stuck one did not run")
		}
		close(release)
	})
}
