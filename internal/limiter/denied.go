package limiter

import (
	"math"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Denied recently. Once the store has denied a charge and said how long to wait, nothing but a gift (a refund, a reset, a
// larger limit) can let that charge or a dearer one pass before. So it is denied here, with no I/O, and the rest of its
// request with it, provided that refusing the request would have changed nothing in the store.
//
// Not remembered: denials of peeks, of shadow charges and quota groups, which refuse nothing by themselves; of limits
// with debt, where a refused report is booked; of queues, where the denial depends on how long that caller would wait.
// In profile envoy the charge that refuses is booked too, and only in a fixed window is booking it again without effect:
// the first one left nothing in the window. Other limits under such bookings always go to the store.

// deniable reports whether d, the store's answer to c, is a denial worth remembering.
func deniable(c *store.Charge, d *store.Decision) bool {
	if d.Allowed || c.Hits <= 0 || c.Vote != store.VoteEnforce || c.Book == store.BookAlways {
		return false
	}
	t := c.Limit.Terms()
	return t.D == 0 && t.MaxDelay == 0 && (c.Book == store.BookIfAdmitted || onceFull(c.Limit))
}

// onceFull reports whether a window that has refused once has nothing left for anyone until its end, as in profile envoy.
func onceFull(l *bucket.Limit) bool { return l.Family() == bucket.Window && !l.Terms().Sliding }

// deny answers a request that the store is sure to refuse, and reports whether it did; else out means nothing. It does
// not allocate.
func (r *recent) deny(charges []store.Charge, out []store.Decision, now time.Duration) bool {
	candidate := false
	for i := range charges {
		c := &charges[i]
		if c.Vote != store.VoteEnforce || c.Hits <= 0 || c.Book == store.BookAlways {
			return false // something else happens to such a charge although its request is refused
		}
		candidate = candidate || r.denies(c, now)
	}
	return candidate && r.answer(charges, out, now)
}

// denies reports whether the store is sure to deny c.
func (r *recent) denies(c *store.Charge, now time.Duration) bool {
	set, mu := r.lock(&c.Key)
	defer mu.Unlock()
	e := set.find(&c.Key, firmly)
	return e != nil && e.denies(c, now, r.refundable(c))
}

// denies reports whether the store is sure to deny c, as dear as what it denied or dearer, on the same numbers.
func (e *said) denies(c *store.Charge, now time.Duration, refundable bool) bool {
	return e.need > 0 && need(c) >= e.need && e.holds(now) &&
		now >= e.deniedSent && now < e.until(refundable) &&
		sameNumbers(e.limit, c.Limit)
}

// refundable reports whether hits may be given back on c's bucket, by callers or by the store.
func (r *recent) refundable(c *store.Charge) bool {
	return r.givesBack || c.Policy != nil && c.Policy.Refunds
}

// holds reports whether what e says can be told now. A clock that stepped back makes its words those of the future.
func (e *said) holds(now time.Duration) bool { return now >= e.sent && !e.windowOver(now) }

// windowOver reports whether the window that the store spoke of may be over now: of the next one nothing is known.
func (e *said) windowOver(now time.Duration) bool {
	return e.limit.Family() == bucket.Window && now >= e.sent+e.reset
}

// answer writes a decision a charge if every one of them is known, and one at least is a denial.
func (r *recent) answer(charges []store.Charge, out []store.Decision, now time.Duration) bool {
	denied := false
	for i := range charges {
		c := &charges[i]
		e, known := r.get(&c.Key)
		if !known || c.Limit.Terms().D > 0 || repeated(charges[:i], &c.Key) || !sameNumbers(e.limit, c.Limit) {
			return false
		}
		ok := false
		if e.denies(c, now, r.refundable(c)) {
			denied = true
			out[i], ok = e.denial(c, now)
		} else {
			out[i], ok = e.spared(c, now)
		}
		if !ok {
			return false
		}
	}
	return denied
}

// denial returns the decision on c, which e denies; false if its wait is not known.
func (e *said) denial(c *store.Charge, now time.Duration) (store.Decision, bool) {
	wait, ok := e.wait(need(c), now)
	return store.Decision{
		Remaining:  max(0, e.inHand(now)),
		RetryAfter: wait,
		ResetAfter: wholeMicros(e.resetAfter(now)),
		Origin:     store.FromDeniedCache,
	}, ok
}

// wait returns the RetryAfter of a charge of need hits, at least as many as were denied; false if it is not known. It is
// counted from when the store's answer came, so that whoever waits so long is never early.
func (e *said) wait(need int64, now time.Duration) (time.Duration, bool) {
	t := e.limit.Terms()
	if need > most(e.limit) || e.retry == bucket.Never {
		return bucket.Never, true
	}
	wait := e.deniedAt + e.retry - now
	if need > e.need {
		switch {
		case onceFull(e.limit): // what does not fit now fits in the next window
		case e.limit.Family() == bucket.Credit:
			ticks := ((need-e.need)*t.P + t.N - 1) / t.N
			if ticks > (math.MaxInt64-int64(wait))/1000/t.Tau {
				return bucket.Never, true
			}
			wait += time.Duration(ticks*t.Tau) * time.Microsecond
		default: // depends on when the hits before were taken
			return 0, false
		}
	}
	return wholeMicros(wait), true
}

// spared returns the decision on c, which is not denied but whose request is: it spends nothing. False if it is not known
// to fit, or if the store would book it should it not fit.
func (e *said) spared(c *store.Charge, now time.Duration) (store.Decision, bool) {
	left := e.inHand(now)
	fits := left >= need(c) && e.holds(now) && now-e.at <= soon && c.Book == store.BookIfAdmitted && e.limit.Terms().MaxDelay == 0
	return store.Decision{
		Allowed:    true,
		Remaining:  left,
		ResetAfter: wholeMicros(e.resetAfter(now)),
		Origin:     store.FromDeniedCache,
	}, fits
}

// wholeMicros rounds a wait up to microseconds, as stores tell them.
func wholeMicros(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}
