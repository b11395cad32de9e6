package redisstore

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// call is one request on its way through a batch. Its caller packs it and reads its reply; a sender, in between, only
// carries it. Reused, unless its caller left while it was under way.
type call struct {
	charges int
	slot    uint16   // of all its keys, in a Cluster
	keys    []string // one a charge
	request string   // as take.lua reads it
	buf     []byte
	reply   []byte // answerLen a charge

	done chan error // capacity 1: how it ended
	lost func()     // told if hits that are given back, whose answer nobody waits for, may not have come; nil: the caller waits

	pending        *pending // guards what follows, until the end is told
	before, behind *call    // there
	deadline       time.Duration
	state          state
	after          *store.Late // of a call that departed and whose caller left: who wants to hear of it
}

// The states of a call.
type state uint8

const (
	waiting  state = iota // for a sender
	departed              // a sender has it
	answered              // its answer is there, or will be in a moment
	left                  // its caller has gone
)

func newCall() *call { return &call{done: make(chan error, 1)} }

// await waits for the end of c, or of ctx. It is a deadline of the caller's, and not only of the call of Redis: one handed
// down is honoured at the next socket operation, which is no bound on latency.
func (c *call) await(ctx context.Context) error {
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return c.pending.leave(c, ctx.Err())
	}
}

// abandoned reports whether the caller has left.
func (c *call) abandoned() bool { return c.state == left }

// finish answers the caller of a call whose answer is there, or whoever wants to hear of one whose caller has left.
func (c *call) finish(err error) {
	if err != nil && c.lost != nil {
		c.lost()
	}
	if c.state == answered {
		c.done <- err
		return
	}
	var out []store.Decision
	if err == nil {
		out = make([]store.Decision, c.charges)
		c.decode(out)
	}
	c.after.End(out, err)
}
