package memstore

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// request is the work on one Take: section "One request" of bucket/SPEC.md, and the twin of that part of the script in
// Redis. It is reused; not safe for concurrent use.
type request struct {
	now       int64 // microseconds
	overflown bool  // whether the overflow shard is locked
	buckets   []work
	asked     []asked // one a charge
}

// work is the working copy of one bucket.
type work struct {
	key     store.Key
	table   *table // nil: it is not kept
	slot    uint32 // noSlot: not in the table yet
	state   bucket.State
	changed bool  // whether state is to be written, or removed if it is absent
	ttl     int64 // microseconds, if it is written
	taken   int64 // hits that the charges so far were granted, less those given back; not below 0
	booked  int64 // hits booked by settle so far
}

// asked is what is noted of one charge.
type asked struct {
	hash    uint64 // of its key
	bucket  int    // its index in buckets
	before  int64  // hits that earlier charges took from its bucket
	allowed bool
}

// start forgets the request before and notes what this one charges.
func (r *request) start(charges []store.Charge) {
	r.overflown = false
	r.buckets = r.buckets[:0]
	if cap(r.asked) < len(charges) {
		r.asked = make([]asked, max(len(charges), store.MaxCharges))
	}
	r.asked = r.asked[:len(charges)]
	for i := range charges {
		r.asked[i].hash = hash(charges[i].Key)
	}
}

// find returns the working copy of the bucket k, −1 if there is none yet.
func (r *request) find(k store.Key) int {
	for i := range r.buckets {
		if r.buckets[i].key == k {
			return i
		}
	}
	return -1
}

// add makes a working copy of the bucket k, which t keeps in slot.
func (r *request) add(k store.Key, t *table, slot uint32) int {
	i := len(r.buckets)
	if i < cap(r.buckets) {
		r.buckets = r.buckets[:i+1] // with the log's memory that lies there
	} else {
		r.buckets = append(r.buckets, work{})
	}
	b := &r.buckets[i]
	b.key, b.table, b.slot = k, t, slot
	b.restore()
	return i
}

// restore makes the working copy again from what is stored.
func (b *work) restore() {
	b.changed, b.taken, b.booked = false, 0, 0
	if b.slot != noSlot {
		b.table.read(b.slot, &b.state)
	} else {
		b.state.Words, b.state.Log = [5]int64{}, b.state.Log[:0]
	}
}

// decide fills out and leaves in the working copies what is to be written.
func (r *request) decide(charges []store.Charge, out []store.Decision) {
	r.ask(charges, out)
	var room [2]uint64 // a bit a quota group of which some charge is allowed
	for i := range charges {
		if v := charges[i].Vote; v >= store.VoteQuota && r.asked[i].allowed {
			room[(v-store.VoteQuota)/64&1] |= 1 << ((v - store.VoteQuota) % 64)
		}
	}
	refuses := func(i int) bool {
		v := charges[i].Vote
		switch {
		case r.asked[i].allowed, v == store.VoteNone:
			return false
		case v >= store.VoteQuota:
			return room[(v-store.VoteQuota)/64&1]>>((v-store.VoteQuota)%64)&1 == 0
		default:
			return true
		}
	}
	refused, again := false, false
	for i := range charges {
		if refuses(i) {
			refused = true
			again = again || charges[i].Book == store.BookWhenRefuses
		}
	}
	for i := range r.buckets {
		again = again || r.buckets[i].changed
	}
	if refused && again {
		r.settle(charges, out, refuses)
	}
}

// ask takes the charges in order, as if the request were admitted.
func (r *request) ask(charges []store.Charge, out []store.Decision) {
	for i := range charges {
		c, a := &charges[i], &r.asked[i]
		b := &r.buckets[a.bucket]
		mode := bucket.Fit
		switch c.Book {
		case store.BookAlways:
			mode = bucket.Report
		case store.BookWhenRefuses:
			mode = bucket.Count
		}
		a.before = b.taken
		o := b.take(c, r.now, mode, 0)
		a.allowed = o.Allowed
		b.taken = max(0, b.taken+o.Granted)
		out[i] = decision(o)
	}
}

// settle books what a refused request books, and shows of the rest what remains uncharged.
func (r *request) settle(charges []store.Charge, out []store.Decision, refuses func(int) bool) {
	for i := range r.buckets {
		r.buckets[i].restore()
	}
	for i := range charges {
		c, a := &charges[i], &r.asked[i]
		b := &r.buckets[a.bucket]
		mode := bucket.Look
		switch {
		case c.Book == store.BookAlways:
			mode = bucket.Report
		case c.Book == store.BookWhenRefuses && refuses(i):
			mode = bucket.Count
		}
		o := b.take(c, r.now, mode, max(0, a.before-b.booked))
		b.booked += o.Granted
		// Whether it fits was asked with what earlier charges had taken; so was the wait, by before.
		o.Allowed, o.Delay = a.allowed, 0
		switch {
		case o.Allowed:
			o.RetryAfter = 0
		case o.RetryAfter == 0:
			o.RetryAfter = 1
		}
		out[i] = decision(o)
	}
}

// take asks one charge of the working copy.
func (b *work) take(c *store.Charge, now int64, mode bucket.Mode, before int64) bucket.Outcome {
	o := c.Limit.Take(&b.state, now, bucket.Ask{
		Hits: c.Hits, AtLeast: c.AtLeast, Tick: c.Tick, MaxDelay: int64(c.MaxDelay / time.Microsecond),
		Before: before, Mode: mode,
	})
	if o.Changed {
		b.changed, b.ttl = true, o.TTL
	}
	return o
}

func decision(o bucket.Outcome) store.Decision {
	return store.Decision{
		Allowed: o.Allowed, Granted: o.Granted, Remaining: o.Remaining,
		RetryAfter: bucket.Wait(o.RetryAfter), ResetAfter: bucket.Wait(o.ResetAfter),
		Delay: bucket.Wait(o.Delay), Tick: o.Tick,
	}
}
