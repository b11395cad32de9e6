package redisstore

import (
	"context"
	"errors"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// TestAnswerBeatsTimer has a caller find, after a stall, that its time is over and its answer there: it takes the answer.
func TestAnswerBeatsTimer(t *testing.T) {
	t.Parallel()
	s := &Store{closing: make(chan struct{})}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // select picks at random
		c := newCall()
		c.timer.Reset(0)
		c.depart()
		c.finish(nil)
		if err := s.await(ended, c); err != nil || c.abandoned() {
			t.Fatalf("got error %v and abandoned %v, want the answer", err, c.abandoned())
		}
	}
	c := newCall()
	c.depart()
	if err := s.await(ended, c); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnsent) || !c.abandoned() {
		t.Errorf("no answer: got error %v, want unavailable and perhaps applied", err)
	}
}
