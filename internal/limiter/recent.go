package limiter

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

const (
	recentLocks = 64
	recentWays  = 8 // places a key may lie in

	// What rests on a bucket that others may fill, or on what others may have spent, is believed no longer than this.
	soon = time.Second
)

// recent remembers what the store last said of buckets: which charges it is sure to deny until when, and how much was
// left, so that the fallback need not start from full buckets. Its memory is fixed: when a place is needed, what would
// matter for the shortest time is forgotten, and a forgotten bucket is one that nothing is known of. Safe for concurrent use.
//
// Its instants are durations since the limiter's start.
type recent struct {
	heads  []head
	ways   [][recentWays]said       // of the set of each head
	locks  [recentLocks]paddedMutex // set n is guarded by lock n mod recentLocks
	forgot atomic.Int64             // what was asked until this instant is not believed
	owing  atomic.Int64             // entries that owe the store something
	due    atomic.Int64             // until when they do

	travels travels

	givesBack bool // the store may give hits back on any bucket
}

type paddedMutex struct {
	sync.Mutex
	_ [56]byte // the rest of a cache line
}

// said is what the store last said of one bucket. The zero value is a free place. What an answer changes, as a rule, comes
// first.
type said struct {
	key       store.Key
	limit     *bucket.Limit // nil: a free place
	sent, at  time.Duration // when the store was asked, and when it had answered
	remaining int64         // whole hits in hand at that time, or unknown
	reset     time.Duration // ResetAfter, counted from at
	need      int64         // the cheapest charge that was denied, in hits; 0 if none was

	retry                time.Duration // of that denial: its RetryAfter, counted from deniedAt
	deniedSent, deniedAt time.Duration // as sent and at, of that answer
	owed                 int64         // hits granted here that the store was never asked for
	warmed               answerID      // of the answer that the local bucket has been drawn down to
}

// answerID tells an answer of the store from others on the same bucket. The zero value is no answer's.
type answerID struct {
	at        time.Duration
	remaining int64
}

func (e *said) id() answerID { return answerID{e.at, e.remaining} }

// unknown is what remains in a bucket after something happened to it that the table did not see.
const unknown = -1

func newRecent(places int) *recent {
	n := max(1, (places+recentWays-1)/recentWays)
	r := &recent{heads: make([]head, n), ways: make([][recentWays]said, n)}
	r.forgot.Store(-1)
	return r
}

// lock returns the set that key lies in, locked.
func (r *recent) lock(key *store.Key) (set, *paddedMutex) {
	n, _ := bits.Mul64(binary.LittleEndian.Uint64(key[8:]), uint64(len(r.heads))) // keys are hashes: evenly spread
	mu := &r.locks[n%recentLocks]
	mu.Lock()
	return set{&r.heads[n], &r.ways[n]}, mu
}

// get returns what is known of a bucket.
func (r *recent) get(key *store.Key) (said, bool) {
	set, mu := r.lock(key)
	defer mu.Unlock()
	if e := set.find(key, something); e != nil {
		return *e, true
	}
	return said{}, false
}

// note remembers the decisions of the store on charges that it was asked for at sent and that were answered at at.
func (r *recent) note(charges []store.Charge, out []store.Decision, sent, at time.Duration) {
	refused := false // to refuse it from memory, all of a request must be known
	for i := range charges {
		refused = refused || deniable(&charges[i], &out[i])
	}
	for i := range charges {
		switch c, d := &charges[i], &out[i]; {
		case c.Hits < 0:
			r.forget(&c.Key, c.Limit, at)
		case d.Origin == store.FromStore:
			r.noteOne(c, d, sent, at, deniable(c, d) && !repeated(charges[:i], &c.Key), !refused && r.nearlyFull(c, d))
		}
	}
}

// mostSlack is how many hits may be gone of a bucket that is taken for full, a hundredth of it at most.
const mostSlack = 100

// nearlyFull reports whether so little is gone of c's bucket, of which the store said d, that it may be taken for full: as one
// is that nothing is known of.
func (r *recent) nearlyFull(c *store.Charge, d *store.Decision) bool {
	full := most(c.Limit)
	return d.Allowed && d.Remaining > full-min(full/100, mostSlack) && r.travels.hits(&c.Key) == 0
}

// noteOne remembers d, the store's answer to c: denied if it is a denial, and spare if it takes no place of another's.
func (r *recent) noteOne(c *store.Charge, d *store.Decision, sent, at time.Duration, denied, spare bool) {
	if int64(sent) <= r.forgot.Load() {
		return
	}
	set, mu := r.lock(&c.Key)
	defer mu.Unlock()
	if spare && set.wayOf(&c.Key, something) < 0 {
		return
	}
	way := r.place(set, &c.Key, at)
	e := &set.ways[way]
	same := e.limit != nil && sameNumbers(e.limit, c.Limit)
	// What is on its way there is to come off it.
	remaining := max(0, d.Remaining-r.travels.hits(&c.Key))
	if same && e.at > sent { // both were under way at the same time: nobody knows which came last
		remaining = min(remaining, e.remaining)
	}
	if e.limit != nil && e.sent > sent {
		if same {
			e.remaining = remaining
		}
		return
	}
	if !same {
		*e = said{key: c.Key, owed: e.owed}
	} else if e.windowOver(at) {
		e.need = 0
	}
	e.limit, e.sent, e.at, e.remaining, e.reset = c.Limit, sent, at, remaining, d.ResetAfter
	switch {
	case denied:
		if need := need(c); e.need == 0 || need <= e.need || e.until(r.refundable(c)) <= at {
			e.need, e.retry, e.deniedSent, e.deniedAt = need, d.RetryAfter, sent, at
		}
	case d.Allowed && (d.Granted > 0 || need(c) >= e.need):
		e.need = 0 // what was taken makes its wait too short
	}
	set.worth[way] = e.worth(at)
}

// forget drops what is known of a bucket: something was given to it. What the store was asked before at and has not
// answered yet will not be believed either.
func (r *recent) forget(key *store.Key, l *bucket.Limit, at time.Duration) {
	set, mu := r.lock(key)
	defer mu.Unlock()
	way := r.place(set, key, at)
	e := &set.ways[way]
	*e = said{key: *key, limit: l, sent: at, at: at, remaining: unknown, owed: e.owed}
	set.worth[way] = e.worth(at)
}

// forgetAll drops what is known of every bucket.
func (r *recent) forgetAll(at time.Duration) {
	r.forgot.Store(int64(at))
	r.each(at, func(e *said) { e.remaining, e.need = unknown, 0 })
}

// each calls f, which may write it, for every entry, under its lock.
func (r *recent) each(now time.Duration, f func(*said)) {
	for n := range r.ways {
		mu := &r.locks[n%recentLocks]
		mu.Lock()
		for i := range r.ways[n] {
			if e := &r.ways[n][i]; e.limit != nil {
				f(e)
				r.heads[n].worth[i] = e.worth(now)
			}
		}
		mu.Unlock()
	}
}

// followed notes that the local bucket of key was drawn down to what e, got from the table, says.
func (r *recent) followed(e *said) {
	set, mu := r.lock(&e.key)
	defer mu.Unlock()
	if now := set.find(&e.key, something); now != nil && now.id() == e.id() {
		now.warmed = e.id()
	}
}

// until returns when the denial ends, counted from when the store was asked: nothing is denied a moment longer than by the
// store. Where callers may give hits back, or only another limit would help, it ends soon.
func (e *said) until(refunds bool) time.Duration {
	lasts := e.retry
	if lasts == bucket.Never || refunds && lasts > soon {
		lasts = soon
	}
	return e.deniedSent + lasts
}

// inHand returns the fewest hits that are in hand now if nobody else came, unknown if that is not known.
func (e *said) inHand(now time.Duration) int64 {
	if e.remaining == unknown {
		return unknown
	}
	t := e.limit.Terms()
	left := e.resetAfter(now)
	switch {
	case e.limit.Family() == bucket.Credit:
		// What is missing takes left to come back, so at most left × N ÷ period hits are missing.
		missing, rest := bits.Mul64(uint64(left.Microseconds()), uint64(t.N))
		period := uint64(t.P * t.Tau)
		if missing >= period {
			return e.remaining
		}
		whole, part := bits.Div64(missing, rest, period)
		if part > 0 {
			whole++
		}
		return max(e.remaining, t.B-int64(whole))
	case t.Sliding: // the window before fades, at a rate that depends on what is not known here
		return e.remaining
	case left == 0:
		return t.N
	default:
		return e.remaining
	}
}

// resetAfter returns what is left of the answer's ResetAfter.
func (e *said) resetAfter(now time.Duration) time.Duration {
	return max(0, e.reset-max(0, now-e.at))
}

// sameNumbers reports whether two limits grant the same, as a limit and its copy in a later snapshot do.
func sameNumbers(a, b *bucket.Limit) bool {
	if a == b {
		return true
	}
	ca, cb := a.Config(), b.Config()
	if (ca.Calendar == nil) != (cb.Calendar == nil) || ca.Calendar != nil && ca.Calendar.String() != cb.Calendar.String() {
		return false
	}
	ca.Calendar, cb.Calendar = nil, nil
	return ca == cb
}

// repeated reports whether key is that of one of charges.
func repeated(charges []store.Charge, key *store.Key) bool {
	for i := range charges {
		if charges[i].Key == *key {
			return true
		}
	}
	return false
}

// need returns the hits that must be in hand for c to fit.
func need(c *store.Charge) int64 {
	switch {
	case c.Hits == 0:
		return 1
	case c.AtLeast > 0:
		return min(c.AtLeast, c.Hits)
	default:
		return c.Hits
	}
}
