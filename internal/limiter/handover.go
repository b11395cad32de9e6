package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// The hand-over back to the store. What was granted here without asking the store is missing from its buckets, so the
// first request on a bucket that reaches the store again brings along what is still missing by then: the hits that were
// granted here, but no more than the local bucket lacks, since the rest has come back meanwhile there and here. A charge
// that may have been applied, one that was sent and not answered, is never among them.

// handOverFor is how long after an outage what was granted here is owed. Whoever comes back later, to a bucket that refills
// more slowly, finds in it what it was granted here as well: a local burst at most.
const handOverFor = 10 * time.Minute

// noteOwed notes what was granted here of charges that the store was surely not paid.
func (r *recent) noteOwed(charges []store.Charge, out []store.Decision, unsent *chargeSet, now time.Duration) {
	for i := range charges {
		c, d := &charges[i], &out[i]
		if d.Origin != store.FromLocal || d.Granted == 0 || c.Key.Provisional() || c.Policy != nil && c.Policy.NodeScope {
			continue
		}
		if unsent.has(i) || d.Granted < 0 {
			r.owe(c, d.Granted, now)
		}
	}
}

// owe notes that granted hits, or if negative so many fewer, were granted on the bucket of c without the store.
func (r *recent) owe(c *store.Charge, granted int64, now time.Duration) {
	set, mu := r.lock(&c.Key)
	defer mu.Unlock()
	if granted < 0 && set.find(&c.Key, something) == nil {
		return
	}
	way := r.place(set, &c.Key, now)
	e := &set.ways[way]
	if e.limit == nil {
		e.limit, e.remaining = c.Limit, unknown
	}
	was := r.collect(e)
	if e.owed = max(0, was+granted); e.owed > 0 {
		r.owing.Add(1)
		r.due.Store(int64(now + handOverFor))
	}
	set.worth[way] = e.worth(now)
}

// collect returns what e owes, which it then owes no more.
func (r *recent) collect(e *said) int64 {
	owed := e.owed
	if owed > 0 {
		e.owed = 0
		r.owing.Add(-1)
	}
	return owed
}

// forgive has nobody owe anything.
func (r *recent) forgive(now time.Duration) {
	r.each(now, func(e *said) { r.collect(e) })
}

// owing reports whether anything is owed to the store.
func (l *Limiter) owing(now time.Duration) bool {
	if l.recent == nil || l.local == nil || l.recent.owing.Load() == 0 {
		return false
	}
	due := l.recent.due.Load()
	if int64(now) <= due || l.shards != nil && l.shards.open.Load() > 0 {
		return true
	}
	if l.recent.due.CompareAndSwap(due, int64(now+handOverFor)) { // one caller does it
		l.recent.forgive(now)
	}
	return false
}

// addOwed adds to p what is owed on the buckets of the charges that are to be sent.
func (l *Limiter) addOwed(ctx context.Context, p *part, charges []store.Charge, unsent *chargeSet) {
	for i := range charges {
		if unsent.has(i) || len(p.charges)+len(charges) >= store.MaxCharges {
			continue
		}
		c := &charges[i]
		all := l.recent.handOver(&c.Key, l.now())
		if all == 0 {
			continue
		}
		owed := min(all, l.missingHere(ctx, c))
		l.recent.travels.add(&c.Key, owed-all, 0, l.now())
		if owed == 0 {
			l.recent.travels.arrived(&c.Key, 0)
			continue
		}
		p.add(-1, store.Charge{
			Key: c.Key, Limit: c.Limit, Policy: c.Policy, Hits: owed,
			Vote: store.VoteNone, Book: store.BookAlways, // as much of it as there is, whatever becomes of the request
		})
	}
}

// handOver returns what is owed on a bucket, which is then on its way and owed no more.
func (r *recent) handOver(key *store.Key, now time.Duration) int64 {
	set, mu := r.lock(key)
	defer mu.Unlock()
	way := set.wayOf(key, firmly)
	if way < 0 || set.ways[way].owed == 0 {
		return 0
	}
	e := &set.ways[way]
	r.travels.add(key, e.owed, 1, now) // before it is owed no more: nobody may see neither
	owed := r.collect(e)
	set.worth[way] = e.worth(now)
	return owed
}

// grantedLate notes what was granted here of charges whose call is still under way.
func (l *Limiter) grantedLate(charges []store.Charge, out []store.Decision, unsent *chargeSet, late *store.Late) {
	if late == nil {
		return
	}
	var granted []store.Charge
	for i := range charges {
		if d := &out[i]; d.Origin == store.FromLocal && d.Granted > 0 && !unsent.has(i) {
			c := charges[i]
			c.Hits = d.Granted
			l.recent.travels.add(&c.Key, c.Hits, 1, l.now())
			granted = append(granted, c)
		}
	}
	if len(granted) > 0 {
		late.Then(func(_ []store.Decision, err error) { l.arrived(granted, errors.Is(err, store.ErrUnsent)) })
	}
}

// arrived notes that hits granted here, which were on their way, have come to the store as far as they ever will. If they
// surely have not, they are owed.
func (l *Limiter) arrived(granted []store.Charge, unsent bool) {
	for i := range granted {
		c := &granted[i]
		if unsent {
			l.recent.owe(c, c.Hits, l.now())
		}
		l.recent.travels.arrived(&c.Key, c.Hits)
	}
}

// missingHere returns the hits that the local bucket of c lacks.
func (l *Limiter) missingHere(ctx context.Context, c *store.Charge) int64 {
	peek := l.localCharge(c, l.nodes.Count())
	peek.Hits, peek.AtLeast, peek.Vote, peek.Book = 0, 0, store.VoteNone, store.BookIfAdmitted
	var d [1]store.Decision
	if l.local.Take(context.WithoutCancel(ctx), []store.Charge{peek}, d[:]) != nil {
		return 0
	}
	return most(peek.Limit) - d[0].Remaining
}
