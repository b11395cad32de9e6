package store_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Whoever asks what became of a late request is told once, whether the answer came before or after.
func TestLate(t *testing.T) {
	t.Parallel()
	late := store.NewLate(store.ErrUnavailable)
	if !errors.Is(late, store.ErrUnavailable) || errors.Is(late, store.ErrUnsent) {
		t.Errorf("got %v, want it to be unavailable and perhaps applied", late)
	}
	var told atomic.Int64
	hear := func(out []store.Decision, err error) {
		if len(out) != 1 || out[0].Remaining != 7 || err != nil {
			t.Errorf("got %+v and %v, want 7 left", out, err)
		}
		told.Add(1)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { late.Then(hear) })
	}
	wg.Go(func() { late.End([]store.Decision{{Remaining: 7}}, nil) })
	wg.Wait()
	late.Then(hear)
	if got := told.Load(); got != 51 {
		t.Errorf("got %d told, want 51", got)
	}
}
