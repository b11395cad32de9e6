package redisstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// TestAnswerBeatsTimer has a caller find, after a stall, that its time is over and its answer there: it takes the answer.
func TestAnswerBeatsTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Millisecond
		p := newPending(timeout)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // select picks at random
			c := depart(t, p)
			p.answered([]*call{c})
			time.Sleep(2 * timeout)
			c.finish(nil)
			if err := c.await(ended); err != nil || c.abandoned() {
				t.Fatalf("got error %v and abandoned %v, want the answer", err, c.abandoned())
			}
		}
		c := depart(t, p)
		if err := c.await(ended); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnsent) || !c.abandoned() {
			t.Errorf("no answer: got error %v, want unavailable and perhaps applied", err)
		}
	})
}
