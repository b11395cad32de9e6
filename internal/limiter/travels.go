package limiter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// travels are hits that were granted here and are on their way to the store, by bucket: those that are being handed over,
// and those of calls whose callers did not wait. Until they arrive, the store believes that it has more to grant than it has.
// The zero value is ready; safe for concurrent use.
type travels struct {
	buckets atomic.Int64 // as many as are in the map
	mu      sync.Mutex
	journey map[store.Key]*journey
}

// A journey is what is on its way to one bucket.
type journey struct {
	hits  int64
	calls int           // that carry them
	last  time.Duration // when the last of them was noted
	ended chan struct{} // closed when all have arrived
}

// add notes that calls with hits for a bucket are on their way.
func (t *travels) add(key *store.Key, hits int64, calls int, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.journey[*key]
	if j == nil {
		if t.journey == nil {
			t.journey = make(map[store.Key]*journey)
		}
		j = &journey{ended: make(chan struct{})}
		t.journey[*key] = j
		t.buckets.Add(1)
	}
	j.hits += hits
	j.calls += calls
	j.last = now
}

// arrived notes that a call with hits for a bucket has come to its end.
func (t *travels) arrived(key *store.Key, hits int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.journey[*key]
	j.hits -= hits
	if j.calls--; j.calls == 0 {
		delete(t.journey, *key)
		t.buckets.Add(-1)
		close(j.ended)
	}
}

// hits returns how many are on their way to a bucket.
func (t *travels) hits(key *store.Key) int64 {
	if t.buckets.Load() == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.journey[*key]; j != nil {
		return j.hits
	}
	return 0
}

// get returns the journey to a bucket as it is now, and whether there is one.
func (t *travels) get(key *store.Key) (journey, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.journey[*key]; j != nil {
		return *j, true
	}
	return journey{}, false
}

// travelling reports whether any hits are on their way.
func (l *Limiter) travelling() bool { return l.recent != nil && l.recent.travels.buckets.Load() > 0 }

// forgetTravel is how much longer than a call may take, as a rule, hits on their way are waited for: a store that hangs for
// ever never says what became of them.
const forgetTravel = time.Second

// ahead returns the journey that c must not overtake, false if there is none: where so little is left, or may be left, that
// the calls under way could take what those hits are to take.
func (l *Limiter) ahead(c *store.Charge) (journey, bool) {
	if c.Hits <= 0 || !l.travelling() {
		return journey{}, false
	}
	j, ok := l.recent.travels.get(&c.Key)
	if !ok || l.now()-j.last > 2*l.timeout+forgetTravel {
		return journey{}, false
	}
	left := most(c.Limit)
	if e, known := l.recent.get(&c.Key); known && e.remaining != unknown {
		left = e.remaining
	}
	return j, left < j.hits+c.Hits+l.inFlight.Load()
}

// A wait is what one request waits for hits that are ahead of it, half of its time at most: what is left is the store's. The
// zero value has not waited.
type wait struct {
	waited bool
	cancel context.CancelFunc
}

// until waits until c may be sent, and reports false if its time is over before.
func (w *wait) until(ctx context.Context, l *Limiter, c *store.Charge, sent time.Duration) bool {
	for {
		j, ok := l.ahead(c)
		if !ok {
			return true
		}
		rest := sent + l.timeout/2 - l.now()
		if rest <= 0 {
			return false
		}
		w.waited = true
		timer := time.NewTimer(rest)
		select {
		case <-j.ended:
		case <-timer.C:
			return false
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// context returns ctx for a request that was asked at sent, with a deadline if it has waited: it has the time of one call.
func (w *wait) context(ctx context.Context, l *Limiter, sent time.Duration) context.Context {
	if w.waited {
		ctx, w.cancel = context.WithTimeout(ctx, sent+l.timeout-l.now())
	}
	return ctx
}

// end frees what context has made.
func (w *wait) end() {
	if w.cancel != nil {
		w.cancel()
	}
}
