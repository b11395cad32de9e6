package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// depart puts a call and has it depart.
func depart(t *testing.T, p *pending) *call {
	t.Helper()
	c, b := newCall(), batch{}
	if err := p.put(c); err != nil {
		t.Fatal(err)
	}
	p.take(&b, 1)
	return c
}

// TestPendingExpires ends each call when its own time is over, wherever it is, and once.
func TestPendingExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Millisecond
		p := newPending(timeout)
		start := time.Now()
		ends := make(chan time.Duration)
		await := func(c *call, unsent bool) {
			err := c.await(t.Context())
			if !errors.Is(err, errTimeout) || errors.Is(err, store.ErrUnsent) != unsent || !c.abandoned() {
				t.Errorf("got error %v and abandoned %v, want a timeout, and ErrUnsent %v", err, c.abandoned(), unsent)
			}
			ends <- time.Since(start)
		}
		want := []time.Duration{0, time.Millisecond, 4 * time.Millisecond, 4 * time.Millisecond, 20 * time.Millisecond}
		go func() {
			var last *call
			for i, at := range want {
				time.Sleep(at - time.Since(start))
				c := newCall()
				if i == 2 { // nobody waits for it
					c.lost = func() { t.Error("given back in vain") }
				}
				if err := p.put(c); err != nil {
					t.Error(err)
				}
				switch i {
				case 0: // departs, and its answer comes too late
					p.take(&batch{}, 1)
					last = c
					go await(c, false)
				case 2:
				default:
					go await(c, true)
				}
			}
			p.answered([]*call{last})
			last.finish(nil)
		}()
		for i, at := range want {
			if i == 2 {
				continue
			}
			if got := <-ends; got != at+timeout {
				t.Errorf("call %d: ended after %v, want %v", i, got, at+timeout)
			}
		}
		var b batch
		p.take(&b, 100)
		if len(b.calls) != 1 || b.calls[0].lost == nil || p.waiting != 0 {
			t.Errorf("got %d calls that still wait, want the one that nobody waits for", len(b.calls))
		}
	})
}

// TestPendingClose ends what waits for a sender and leaves the rest to it.
func TestPendingClose(t *testing.T) {
	t.Parallel()
	p := newPending(time.Hour)
	departed := depart(t, p)
	waits, back, lost := newCall(), newCall(), 0
	back.lost = func() { lost++ }
	for _, c := range []*call{waits, back} {
		if err := p.offer(c, 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.offer(newCall(), 2); !errors.Is(err, errFull) || !errors.Is(err, store.ErrUnsent) {
		t.Errorf("behind two: got error %v, want errFull, unsent", err)
	}
	p.close()
	if err := waits.await(t.Context()); !errors.Is(err, errClosed) || !errors.Is(err, store.ErrUnsent) {
		t.Errorf("a call that waits: got error %v, want errClosed, unsent", err)
	}
	if lost != 1 {
		t.Errorf("got %d hits lost, want those that waited to be given back", lost)
	}
	if p.wait() {
		t.Error("senders go on, want an end")
	}
	if err := p.put(newCall()); !errors.Is(err, errClosed) {
		t.Errorf("afterwards: got error %v, want errClosed", err)
	}
	p.answered([]*call{departed})
	departed.finish(nil)
	if err := departed.await(t.Context()); err != nil {
		t.Errorf("a call that had departed: got error %v, want its answer", err)
	}
}

// TestPendingEndsEach has callers that leave, senders that dawdle, and calls that are late: each call ends once and in time,
// by its answer if that is there.
func TestPendingEndsEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout, senders, callers, calls = 5 * time.Millisecond, 2, 50, 200
		p := newPending(timeout)
		pause := func(most time.Duration) { time.Sleep(rand.N(most)) }
		var working, asking sync.WaitGroup
		for range senders {
			working.Go(func() {
				var b batch
				for p.wait() {
					p.take(&b, 16)
					pause(2 * timeout)
					p.answered(b.calls)
					for _, c := range b.calls {
						c.finish(nil)
					}
					b.clear()
				}
			})
		}
		idle := sync.Pool{New: func() any { return newCall() }} // as Take reuses calls
		var answers, late, unsent int
		var mu sync.Mutex
		for range callers {
			asking.Go(func() {
				for range calls {
					pause(timeout)
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*timeout))
					began := time.Now()
					c := idle.Get().(*call)
					err := p.put(c)
					if err == nil {
						err = c.await(ctx)
					}
					ended := ctx.Err() != nil
					if !c.abandoned() {
						idle.Put(c)
					}
					cancel()
					took := time.Since(began)
					mu.Lock()
					switch {
					case err == nil && took <= timeout:
						answers++
					case took > timeout || took < timeout && !ended:
						t.Errorf("got %v after %v, caller gone %v", err, took, ended)
					case errors.Is(err, store.ErrUnsent):
						unsent++
					default:
						if _, ok := errors.AsType[*store.Late](err); !ok {
							t.Errorf("got error %v, want one that is heard of later", err)
						}
						late++
					}
					mu.Unlock()
				}
			})
		}
		asking.Wait()
		p.close()
		working.Wait()
		if p.first != nil || p.last != nil || p.next != nil || p.waiting != 0 {
			t.Errorf("got %d calls left", p.waiting)
		}
		if answers == 0 || late == 0 || unsent == 0 {
			t.Errorf("got %d answers, %d late, %d unsent; want some of each", answers, late, unsent)
		}
	})
}
