package ledger

import (
	"context"
	"time"
)

// retry is how soon Watch asks again after an error.
const retry = time.Second

// Watch calls deliver with the state, and again after every change, until ctx ends. Changes in quick succession may come
// as one. It learns of one when it is made here, when Follow hears of it, and by looking every now and then; failed hears
// of the first look that did not succeed, and again of the first after one that did.
func (l *Ledger) Watch(ctx context.Context, deliver func(State), failed func(error)) {
	nudge := make(chan struct{}, 1)
	l.mu.Lock()
	l.watchers[nudge] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, nudge)
	}()
	seen, failing, last := false, false, State{}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-nudge:
		case <-t.C:
		}
		wait := l.o.Poll
		st, err := l.State(ctx)
		switch {
		case err != nil:
			wait = min(retry, wait)
			if !failing && ctx.Err() == nil {
				failed(err)
			}
		case !seen || st.Seq != last.Seq || st.Hash != last.Hash:
			seen, last = true, st
			deliver(st)
		}
		failing = err != nil
		t.Reset(wait)
	}
}

// States is Watch for who reads states from a channel. The function that it returns waits until the watching, which ends
// with ctx, has ended.
func (l *Ledger) States(ctx context.Context, failed func(error)) (<-chan State, func()) {
	states, ended := make(chan State), make(chan struct{})
	go func() {
		defer close(ended)
		l.Watch(ctx, func(st State) {
			select {
			case states <- st:
			case <-ctx.Done():
			}
		}, failed)
	}()
	return states, func() { <-ended }
}

// Announce has every process that follows call its Heard: something was done that is no change of settings.
func (l *Ledger) Announce(ctx context.Context) {
	if b, ok := l.backend.(interface{ announce(context.Context) }); ok {
		b.announce(ctx)
	}
	l.Nudge()
}

// Nudge has everybody who watches in this process look now, and calls Heard. It does not block.
func (l *Ledger) Nudge() {
	if l.o.Heard != nil {
		l.o.Heard()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watchers {
		select {
		case w <- struct{}{}:
		default: // it has not looked since the last one
		}
	}
}

// Follow hears of changes that other processes make, and nudges, until ctx ends. What it misses, Watch finds by looking.
// A ledger of one process has nobody to hear of: then Follow just waits.
func (l *Ledger) Follow(ctx context.Context) {
	if f, ok := l.backend.(interface {
		follow(ctx context.Context, nudge func())
	}); ok {
		f.follow(ctx, l.Nudge)
	}
	<-ctx.Done()
}
