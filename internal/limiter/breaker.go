package limiter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// When a breaker opens and closes. None of it is configured: the figures belong together.
const (
	binWidth   = 10 * time.Millisecond
	shortBins  = 20  // the sliding 200 ms
	longBins   = 100 // the sliding second, looked at when the short window saw too few calls
	tripCalls  = 20  // fewer calls than this open nothing
	probeFirst = 100 * time.Millisecond
	probeLast  = 5 * time.Second

	// A probe after an outage may have to dial, so it may take this many budgets; it is then asked once more.
	probePatience = 20

	// A store that comes and goes closes its breaker three times in a row and then once in 20 s: at most 12 transitions
	// in any minute. Each may hand out a local burst, so their number is bounded.
	closeBurst = 3
	closeEvery = 20 * time.Second
)

// A bin counts the calls that ended in one binWidth of time.
type bin struct {
	number   atomic.Int64 // which binWidth since the start it speaks of; one out of the window speaks of nothing
	ok, fail atomic.Int32
}

// A breaker says whether a shard of the store may be called. It opens when half of the recent calls failed, and only a
// probe in the background closes it again, one at a time: no caller's request is spent on finding out. Safe for
// concurrent use.
type breaker struct {
	probe  func(context.Context) error // asks the shard whether it would take charges
	budget time.Duration               // an answer that takes longer is none: slow is down
	now    func() time.Duration
	moved  func(open bool) // told of every transition, on the goroutine that made it
	bg     *background

	open  atomic.Bool
	bins  [longBins]bin
	event chan struct{} // capacity 1: probe now

	mu      sync.Mutex    // held to open, to close, and to start a bin
	closing time.Duration // when the spare closings will be there again
}

func newBreaker(bg *background, budget time.Duration, now func() time.Duration, probe func(context.Context) error, moved func(open bool)) *breaker {
	return &breaker{probe: probe, budget: budget, now: now, moved: moved, bg: bg, event: make(chan struct{}, 1)}
}

// record counts a call that ended at now, and opens the breaker if it was one failure too many.
func (b *breaker) record(now time.Duration, ok bool) {
	n := int64(now / binWidth)
	c := &b.bins[n%longBins]
	if c.number.Load() != n {
		b.startBin(c, n)
	}
	if ok {
		c.ok.Add(1)
		return
	}
	c.fail.Add(1)
	if b.tooMany(n) {
		b.trip()
	}
}

func (b *breaker) startBin(c *bin, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.number.Load() != n {
		c.ok.Store(0)
		c.fail.Store(0)
		c.number.Store(n)
	}
}

// tooMany reports whether half of the calls in the window that ends with bin n failed.
func (b *breaker) tooMany(n int64) bool {
	var calls, failed int32
	for age := int64(0); age < longBins && age <= n; age++ {
		if age == shortBins && calls >= tripCalls {
			break
		}
		if c := &b.bins[(n-age)%longBins]; c.number.Load() == n-age {
			f := c.fail.Load()
			failed += f
			calls += f + c.ok.Load()
		}
	}
	return calls >= tripCalls && 2*failed >= calls
}

func (b *breaker) trip() {
	b.mu.Lock()
	tripped := !b.open.Load() && b.bg.ctx.Err() == nil
	if tripped {
		b.open.Store(true)
	}
	b.mu.Unlock()
	if !tripped {
		return
	}
	select {
	case <-b.event: // an event from before says nothing about this outage
	default:
	}
	b.moved(true)
	b.bg.start(b.heal)
}

// heal probes until the shard answers, closes the breaker and returns.
func (b *breaker) heal() {
	pause, probed := probeFirst, -probeFirst
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-b.bg.ctx.Done():
			return
		case <-b.event:
			// A probe may itself cause the next event, by dialling, so two probes are never closer than this.
			if rest := probed + probeFirst - b.now(); rest > 0 {
				timer.Reset(rest)
				continue
			}
			pause = 0
		case <-timer.C:
		}
		probed = b.now()
		if !b.answers() {
			pause = max(probeFirst, min(2*pause, probeLast))
			timer.Reset(max(0, probed+pause-b.now()))
			continue
		}
		held := b.tryClose(b.now())
		if held == 0 {
			return
		}
		pause = 0
		timer.Reset(held)
	}
}

// answers probes the shard. A right answer that came late may have been late for dialling, so it is asked again.
func (b *breaker) answers() bool {
	for range 2 {
		began := b.now()
		ctx, cancel := context.WithTimeout(b.bg.ctx, probePatience*b.budget)
		err := b.probe(ctx)
		cancel()
		if err != nil {
			return false
		}
		if b.now()-began <= b.budget {
			return true
		}
	}
	return false
}

// tryClose closes the breaker and returns 0, or returns how long it must be held open because it closed too often.
func (b *breaker) tryClose(now time.Duration) time.Duration {
	b.mu.Lock()
	if held := b.closing - now - (closeBurst-1)*closeEvery; held > 0 {
		b.mu.Unlock()
		return held
	}
	b.closing = max(b.closing, now) + closeEvery
	for i := range b.bins { // what failed before must not open it again
		b.bins[i].ok.Store(0)
		b.bins[i].fail.Store(0)
	}
	b.open.Store(false)
	b.mu.Unlock()
	b.moved(false)
	return 0
}

// nudge has an open breaker probe at once: something happened that may have brought the shard back.
func (b *breaker) nudge() {
	if !b.open.Load() {
		return
	}
	select {
	case b.event <- struct{}{}:
	default:
	}
}
