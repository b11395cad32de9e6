package main

import (
	"context"
	"errors"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// failsOnce is a store that is away when it is first asked.
type failsOnce struct{ asked int }

var errAway = errors.New("away")

func (f *failsOnce) Take(context.Context, []store.Charge, []store.Decision) error {
	if f.asked++; f.asked == 1 {
		return errAway
	}
	return nil
}

// What explain prints of a store that did not answer is why it did not, though it may have answered since.
func TestHeardKeepsWhy(t *testing.T) {
	t.Parallel()
	h := &heard{Store: new(failsOnce)}
	for i, want := range []error{errAway, nil} {
		if err := h.Take(t.Context(), nil, nil); !errors.Is(err, want) {
			t.Errorf("call %d: got %v, want %v", i+1, err, want)
		}
		if !errors.Is(h.err, errAway) {
			t.Errorf("after call %d: got %v kept, want %v", i+1, h.err, errAway)
		}
	}
}
