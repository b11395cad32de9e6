package transport

import (
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// call is one request on its way down and its verdict on the way up. Calls are pooled: see newCall and release.
type call struct {
	req            engine.Request
	entries        []rule.Entry // of all descriptors, which hold slices of it
	excess         int          // descriptors beyond maxDescriptors
	tooManyEntries bool
	undecodable    error
	verdict        engine.Verdict
}

var calls = sync.Pool{New: func() any { return new(call) }}

func newCall() *call { return calls.Get().(*call) }

// release gives c back to the pool, empty, so that an idle pool keeps neither a message nor a snapshot of rules alive.
// Calls that grew large are left to the garbage collector.
func (c *call) release() {
	const keep = 256
	if cap(c.entries) > keep || cap(c.req.Descriptors) > keep || cap(c.verdict.Statuses) > keep {
		return
	}
	c.reset()
	calls.Put(c)
}

// reset empties c and keeps its memory.
func (c *call) reset() {
	clear(c.entries)
	clear(c.req.Descriptors)
	clear(c.verdict.Statuses)
	*c = call{
		req:     engine.Request{Descriptors: c.req.Descriptors[:0]},
		entries: c.entries[:0],
		verdict: engine.Verdict{Statuses: c.verdict.Statuses[:0]},
	}
}

// tooLarge reports whether parts of the request were left out, so that it cannot be matched against any rule.
func (c *call) tooLarge() bool { return c.excess > 0 || c.tooManyEntries }

// descriptors returns how many descriptors the request has, those left out included.
func (c *call) descriptors() int { return len(c.req.Descriptors) + c.excess }
