package redisstore

import (
	"sync/atomic"
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

	state atomic.Int32 // one of waiting, departed, answered, left
	after *store.Late  // of a call that departed and whose caller left: who wants to hear of it
	done  chan error
	timer *time.Timer
	lost  func() // told if hits that are given back, whose answer nobody waits for, may not have come; nil: the caller waits
}

// The states of a call: whoever moves it from waiting decides what becomes of it.
const (
	waiting  = iota // for a sender
	departed        // a sender has it
	answered        // its answer is there, or will be in a moment
	left            // its caller has gone
)

func newCall() *call {
	c := &call{done: make(chan error, 1), timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	return c
}

// reset makes c ready for another request.
func (c *call) reset() { c.state.Store(waiting) }

// depart claims c for a sender; false means that its caller has left and c is not to be sent.
func (c *call) depart() bool { return c.state.CompareAndSwap(waiting, departed) }

// abandon is what a caller does that waits no longer and whose call has not departed; it returns why as an error of the
// store.
func (c *call) abandon(why error) error {
	c.state.Store(left)
	return unsent(why)
}

// late is what a caller does whose time is over; it returns why as an error of the store. What has not departed never will,
// what has is heard of later, and an answer that is there is taken: a process that did not run for a while finds both at once.
func (c *call) late(why error) error {
	if c.withdraw() {
		return unsent(why)
	}
	if c.state.Load() == departed {
		c.after = store.NewLate(unavailable(why))
		if c.state.CompareAndSwap(departed, left) {
			return c.after
		}
		c.after = nil
	}
	return <-c.done
}

// withdraw takes back a call that has not departed, and reports whether that was so.
func (c *call) withdraw() bool { return c.state.CompareAndSwap(waiting, left) }

// abandoned reports whether the caller has left.
func (c *call) abandoned() bool { return c.state.Load() == left }

// finish answers the caller, or whoever wants to hear of a call whose caller has left.
func (c *call) finish(err error) {
	if err != nil && c.lost != nil {
		c.lost()
	}
	if c.state.CompareAndSwap(departed, answered) {
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
