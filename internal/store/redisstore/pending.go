package redisstore

import (
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// pending are the calls of a lane that have not ended, in the order they came: those that senders have, and behind them
// those that wait for one. All have the same time, so that one timer, set to the end of the first's, does for all. Made by
// newPending; safe for concurrent use.
type pending struct {
	timeout time.Duration
	start   time.Time // deadlines are counted from

	mu          sync.Mutex
	work        sync.Cond // a call waits for a sender, or closed
	first, last *call
	next        *call // the first that waits
	waiting     int
	closed      bool
	timer       *time.Timer
	armed       bool
}

func newPending(timeout time.Duration) *pending {
	p := &pending{timeout: timeout, start: time.Now()}
	p.work.L = &p.mu
	p.timer = time.AfterFunc(timeout, p.expire)
	p.timer.Stop()
	return p
}

// put adds c, whose end is told on c.done.
func (p *pending) put(c *call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.putLocked(c)
}

// offer is put where no more than so many calls wait.
func (p *pending) offer(c *call, most int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting >= most {
		return unsent(errFull)
	}
	return p.putLocked(c)
}

func (p *pending) putLocked(c *call) error {
	if p.closed {
		return unsent(errClosed)
	}
	c.pending, c.state, c.deadline = p, waiting, time.Since(p.start)+p.timeout
	c.before = p.last
	if p.last == nil {
		p.first = c
	} else {
		p.last.behind = c
	}
	p.last = c
	if p.waiting++; p.next == nil {
		p.next = c
		p.work.Signal()
	}
	if !p.armed {
		p.armed = true
		p.timer.Reset(p.timeout)
	}
	return nil
}

// wait blocks until a call waits for a sender, and reports false once nothing will.
func (p *pending) wait() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.next == nil && !p.closed {
		p.work.Wait()
	}
	return !p.closed
}

// take has calls that wait depart in b, until it has so many charges.
func (p *pending) take(b *batch, charges int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.next != nil && b.charges < charges {
		c := p.next
		c.state, p.next = departed, c.behind
		p.waiting--
		b.calls = append(b.calls, c)
		b.charges += c.charges
	}
	if p.next != nil {
		p.work.Signal()
	}
}

// answered notes that the answers of calls are there: those whose callers have not left end by them.
func (p *pending) answered(calls []*call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range calls {
		if c.state == departed {
			c.state = answered
			p.removeLocked(c)
		}
	}
}

// leave is what a caller does that waits no longer; it returns why as an error of the store. What has not departed never
// will, what has is heard of later, and an answer that is there is taken: a process that did not run for a while finds both
// at once.
func (p *pending) leave(c *call, why error) error {
	p.mu.Lock()
	err := p.endLocked(c, why)
	p.mu.Unlock()
	if err == nil {
		return <-c.done
	}
	return err
}

// expire ends the calls whose time is over.
func (p *pending) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(p.start)
	for c := p.first; c != nil; {
		behind := c.behind
		if c.lost == nil { // somebody waits
			if rest := c.deadline - now; rest > 0 {
				p.timer.Reset(rest)
				return
			}
			c.done <- p.endLocked(c, errTimeout)
		}
		c = behind
	}
	p.armed = false
}

// endLocked ends c without an answer and returns what its caller is told, nil if it has ended.
func (p *pending) endLocked(c *call, why error) error {
	var err error
	switch c.state {
	case waiting:
		err = unsent(why)
		p.waiting--
		if p.next == c {
			p.next = c.behind
		}
	case departed:
		c.after = store.NewLate(unavailable(why))
		err = c.after
	default:
		return nil
	}
	c.state = left
	p.removeLocked(c)
	return err
}

func (p *pending) removeLocked(c *call) {
	if c.before == nil {
		p.first = c.behind
	} else {
		c.before.behind = c.behind
	}
	if c.behind == nil {
		p.last = c.before
	} else {
		c.behind.before = c.before
	}
	c.before, c.behind = nil, nil
}

// close ends the calls that wait for a sender. Those that have departed end as ever.
func (p *pending) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for p.next != nil {
		c := p.next
		c.done <- p.endLocked(c, errClosed)
		if c.lost != nil {
			c.lost()
		}
	}
	p.work.Broadcast()
}
