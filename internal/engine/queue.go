package engine

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

const (
	defaultWaiters = 1024
	// answerSlack is what a held answer leaves of its caller's deadline, to be written and read in time.
	answerSlack = 5 * time.Millisecond
	// giveBackTimeout bounds giving back what a caller who is gone was charged. The store has a shorter one of its own.
	giveBackTimeout = time.Second
)

// queue holds the answers of leaky buckets with a max_delay. A waiter takes its slot before anything is charged, so that
// nobody is charged who could not be held.
type queue struct {
	slots    int64
	taken    atomic.Int64
	waiting  atomic.Int64
	now      func() time.Time
	pause    func(context.Context, time.Duration) error // nil: a timer, woken by drained
	drained  chan struct{}
	draining sync.Once
}

func newQueue(o Options) *queue {
	q := &queue{slots: int64(o.Waiters), now: o.Now, pause: o.Hold, drained: make(chan struct{})}
	if q.slots <= 0 {
		q.slots = defaultWaiters
	}
	if q.now == nil {
		q.now = time.Now
	}
	return q
}

func (q *queue) drain() { q.draining.Do(func() { close(q.drained) }) }

// enter limits the delays that the charges of p accept to what its caller has time for, or to none when all slots are
// taken or the engine drains. It reports whether a slot was taken, which leave gives back.
func (q *queue) enter(ctx context.Context, p *plan) bool {
	entered := q.reserve()
	left := time.Duration(0)
	if entered {
		left = math.MaxInt64
		if deadline, ok := ctx.Deadline(); ok {
			left = max(0, deadline.Sub(q.now())-answerSlack)
		}
	}
	for i := range p.charges {
		if p.queues(i) {
			p.charges[i].MaxDelay = min(p.charges[i].MaxDelay, left)
		}
	}
	return entered
}

func (q *queue) reserve() bool {
	select {
	case <-q.drained:
		return false
	default:
	}
	if q.taken.Add(1) > q.slots {
		q.taken.Add(-1)
		return false
	}
	return true
}

func (q *queue) leave() { q.taken.Add(-1) }

// wait blocks for d, less if the engine drains, or returns ctx's error.
func (q *queue) wait(ctx context.Context, d time.Duration) error {
	q.waiting.Add(1)
	defer q.waiting.Add(-1)
	if q.pause != nil {
		return q.pause(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-q.drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// queues reports whether the answer may be held for charge i. A shadow rule holds nobody up.
func (p *plan) queues(i int) bool {
	o := &p.owners[i]
	r := p.matches[o.match].rule
	return o.limit.Bucket.MaxDelay() > 0 && p.charges[i].Hits > 0 && (r == nil || !r.Shadow)
}

// hold waits until the slowest queue of an admitted request lets it pass. A caller that goes away meanwhile is refused by
// its queue, and like every refused request is charged nothing.
func (e *Engine) hold(ctx context.Context, p *plan) {
	var delay time.Duration
	for i := range p.decisions {
		if p.queues(i) && p.decisions[i].Allowed {
			delay = max(delay, p.decisions[i].Delay)
		}
	}
	if delay <= 0 {
		return
	}
	since := time.Now()
	err := e.queue.wait(ctx, delay)
	if p.held = time.Since(since); err == nil {
		return
	}
	e.giveBack(ctx, p)
	p.admitted = false
}

// giveBack returns what was booked for a request whose caller is gone, save reports of what is used already, and refuses
// the charges it was held for.
func (e *Engine) giveBack(ctx context.Context, p *plan) {
	var back []store.Charge
	for i := range p.decisions {
		c, d := p.charges[i], &p.decisions[i]
		if p.queues(i) && d.Delay > 0 {
			d.Allowed, d.RetryAfter = false, d.Delay
		}
		if d.Granted <= 0 || c.Book == store.BookAlways {
			continue
		}
		c.Hits, c.AtLeast, c.Tick, c.Vote, c.Book = -d.Granted, 0, d.Tick, store.VoteNone, store.BookIfAdmitted
		back = append(back, c)
		d.Remaining = min(d.Remaining+d.Granted, bucket.MaxHits)
		d.Granted, d.Tick, d.Delay = 0, 0, 0
	}
	if len(back) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	// What cannot be given back is lost to the rate, as with a caller who dies; nobody is left to be told.
	_ = e.store.Take(ctx, back, make([]store.Decision, len(back)))
}
