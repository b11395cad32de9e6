package limiter

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

var (
	errLate  = fmt.Errorf("limiter: no answer in time: %w", store.ErrUnavailable)
	errEnded = fmt.Errorf("limiter: the caller has left: %w", store.ErrUnsent)
)

// A guardedCall is one call of a store that may not return in time, with copies of what the caller passed.
type guardedCall struct {
	charges []store.Charge
	out     []store.Decision
	err     error
	timer   *time.Timer
	done    chan struct{} // capacity 1: the store returned before the caller left
	over    atomic.Bool   // set by the first of the two
	late    *store.Late   // of a call that the caller has left
}

func newGuardedCall() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &guardedCall{timer: timer, done: make(chan struct{}, 1)}
}

// guarded calls the store on a goroutine of its own and waits for it no longer than the timeout, or than ctx: a
// deadline in a context is kept by the callee, if it is. The call's place in flight is free when the store has returned,
// so that a store that hangs holds a bounded number of goroutines.
func (l *Limiter) guarded(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	if ctx.Err() != nil {
		l.inFlight.Add(-1)
		return errEnded
	}
	g := l.calls.Get().(*guardedCall)
	g.charges = append(g.charges[:0], charges...)
	g.out = append(g.out[:0], out...)
	g.over.Store(false)
	g.timer.Reset(l.timeout)
	go l.runGuarded(ctx, g)

	select {
	case <-g.done:
	case <-g.timer.C:
		if late := g.leave(); late != nil {
			return late // g is the goroutine's now
		}
	case <-ctx.Done():
		if late := g.leave(); late != nil {
			return late
		}
	}
	err := g.err
	copy(out, g.out)
	l.recycle(g)
	return err
}

// leave returns the error of a caller that leaves, or nil if the store has returned before.
func (g *guardedCall) leave() error {
	late := store.NewLate(errLate)
	g.late = late
	if g.over.CompareAndSwap(false, true) {
		return late
	}
	<-g.done
	return nil
}

// runGuarded makes the call. A caller that leaves does not tear its request in two: only the timeout ends the call.
func (l *Limiter) runGuarded(ctx context.Context, g *guardedCall) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
	g.err = l.store.Take(ctx, g.charges, g.out)
	cancel()
	l.inFlight.Add(-1)
	if g.over.CompareAndSwap(false, true) {
		g.done <- struct{}{}
	} else {
		g.late.End(slices.Clone(g.out), g.err)
		l.recycle(g)
	}
}

func (l *Limiter) recycle(g *guardedCall) {
	g.timer.Stop()
	clear(g.charges) // of pointers to limits
	g.err, g.late = nil, nil
	l.calls.Put(g)
}
