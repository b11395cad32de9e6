package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// run is a load under way.
type run struct {
	load  Load
	start time.Time

	measuring atomic.Bool
	stopping  atomic.Bool
	answered  atomic.Int64 // of those measured
	enough    chan struct{}
	dropped   atomic.Int64
}

func (r *run) now() time.Duration { return time.Since(r.start) }

// done counts a measured answer.
func (r *run) done() {
	if r.load.Count > 0 && r.answered.Add(1) == r.load.Count {
		close(r.enough)
	}
}

// more reports whether a closed loop goes on.
func (r *run) more() bool { return !r.stopping.Load() }

// Run sends a load and measures it. It blocks until it is over, or until ctx ends, which is an error. The error says what
// in l is wrong, that the server could not be reached, or that a connection broke meanwhile. It starts goroutines that end
// with it.
func Run(ctx context.Context, l Load) (*Result, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	r := &run{load: l, start: time.Now(), enough: make(chan struct{})}
	var connections []*connection
	var readers sync.WaitGroup
	defer func() {
		r.stopping.Store(true)
		for _, c := range connections {
			_ = c.net.Close() // that is how its reader ends
		}
		readers.Wait()
	}()
	for i := range l.Connections {
		c, err := r.connect(i)
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", l.Addr, err)
		}
		connections = append(connections, c)
		readers.Go(c.read)
	}

	var sender sync.WaitGroup
	defer sender.Wait()
	defer r.stopping.Store(true)
	if l.Rate > 0 {
		sender.Go(func() { r.sendOpen(connections) })
	} else {
		r.fill(connections)
	}
	if err := wait(ctx, l.Warm, nil); err != nil {
		return nil, err
	}
	var before, after sample
	if err := errors.Join(r.count(&before), r.cpu(&before)); err != nil {
		return nil, err
	}
	r.measuring.Store(true)
	began := r.now()
	duration := l.Duration
	if duration == 0 {
		duration = MaxDuration
	}
	err := wait(ctx, duration, r.enough)
	took := r.now() - began
	r.measuring.Store(false)
	err = errors.Join(err, r.cpu(&after), r.count(&after))
	r.stopping.Store(true)
	return r.result(connections, took, before, after), errors.Join(err, broken(connections))
}

// wait waits for a time, or until enough is closed.
func wait(ctx context.Context, d time.Duration, enough <-chan struct{}) error {
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	case <-enough:
	}
	return nil
}

func broken(connections []*connection) error {
	for _, c := range connections {
		c.mu.Lock()
		err := c.failed
		c.mu.Unlock()
		if err != nil {
			return fmt.Errorf("connection broke: %w", err)
		}
	}
	return nil
}

// fill begins a closed loop: its first requests, after which every answer brings the next.
func (r *run) fill(connections []*connection) {
	for _, c := range connections {
		c.mu.Lock()
		for range r.load.Streams {
			c.issueLocked(r.now())
		}
		c.flushLocked()
		c.mu.Unlock()
	}
}

// sendOpen sends at moments drawn beforehand, each request on the next connection, until the run stops. A connection that
// has Streams requests in flight drops the request, which is counted: no load may grow without bound.
func (r *run) sendOpen(connections []*connection) {
	draw := rand.New(rand.NewPCG(r.load.Seed, 1<<32))
	gap := float64(time.Second) / r.load.Rate
	due := float64(r.now())
	touched := make([]bool, len(connections))
	for turn := 0; !r.stopping.Load(); {
		now := r.now()
		if wait := time.Duration(due) - now; wait > 0 {
			pause(wait)
			continue
		}
		for ; due <= float64(now); due += draw.ExpFloat64() * gap {
			c := connections[turn]
			c.mu.Lock()
			if c.flying < r.load.Streams {
				c.issueLocked(time.Duration(due))
				touched[turn] = true
			} else {
				r.drop()
			}
			c.mu.Unlock()
			turn = (turn + 1) % len(connections)
		}
		for i, c := range connections {
			if touched[i] {
				touched[i] = false
				c.mu.Lock()
				c.flushLocked()
				c.mu.Unlock()
			}
		}
	}
}

func (r *run) drop() {
	if r.measuring.Load() {
		r.dropped.Add(1)
	}
}
