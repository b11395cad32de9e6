package limiter

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// defaultFraction is the part of its local share that a limit keeps to under local_strict, in millionths.
const defaultFraction = millionths / 10

// noLimit refuses everything and is never written.
var noLimit = mustLimit(bucket.Config{Unit: bucket.Second})

func mustLimit(c bucket.Config) *bucket.Limit {
	l, err := bucket.New(c)
	if err != nil {
		panic("limiter: " + err.Error()) // the caller made c of a valid limit
	}
	return l
}

// fallBack decides the charges that were not paid, each by its limit's failure mode. Those that buckets of this process
// decide are one request there, which is refused whole if anything refuses the request that they are part of.
func (l *Limiter) fallBack(ctx context.Context, charges []store.Charge, out []store.Decision, unsent chargeSet, late *store.Late) error {
	ctx = context.WithoutCancel(ctx) // the caller's time may be over, but what is decided here does not wait
	p := newPart()
	defer p.free()
	nodes := l.nodes.Count()
	var elsewhere votes // of charges that have room and are decided elsewhere
	var err error
	for i := range charges {
		c, d := &charges[i], &out[i]
		if d.Origin == store.Unavailable {
			if !paidHere(c) {
				l.metrics.fellBack(c)
			}
			if l.local != nil && decidedHere(c) {
				p.add(i, l.localCharge(c, nodes))
				*d = store.Decision{Allowed: true, Origin: store.FromLocal} // until it is known
				continue
			}
			*d = undecided(c)
			err = errUnpaid
		}
		if d.Allowed {
			elsewhere.add(c.Vote)
		}
	}
	if len(p.charges) > 0 {
		p.abstain(&elsewhere)
		if !store.Admitted(charges, out) {
			p.veto()
		}
		if e := l.takeHere(ctx, p, nodes); e != nil {
			err = errUnpaid
		}
		p.copyTo(out)
		if l.recent != nil {
			l.recent.noteOwed(charges, out, &unsent, l.now())
			l.grantedLate(charges, out, &unsent, late)
		}
	}
	l.settle(ctx, charges, out)
	return err
}

// decidedHere reports whether buckets of this process are to decide c, which the store has not.
func decidedHere(c *store.Charge) bool {
	switch {
	case paidHere(c):
		return true
	case c.Hits < 0 && c.Tick != 0:
		return false // taken in the store, so it is not given back here
	default:
		return c.Policy == nil || c.Policy.OnFailure != bucket.FailClosed
	}
}

// undecided returns the decision of a charge that nobody decided. Hits that nobody took back refuse nothing.
func undecided(c *store.Charge) store.Decision {
	d := store.Unpaid(c)
	d.Allowed = d.Allowed || c.Hits < 0
	return d
}

// localCharge returns c as it is taken here, on this node's part of its limit.
func (l *Limiter) localCharge(c *store.Charge, nodes int64) store.Charge {
	s := share{nodes: nodes, millionths: millionths}
	if p := c.Policy; p != nil && p.OnFailure == bucket.LocalStrict && !p.NodeScope {
		s.millionths = defaultFraction
		if p.LocalFraction > 0 {
			s.millionths = p.LocalFraction
		}
	}
	here := *c
	here.Limit = l.shares.limit(c.Limit, s)
	here.Tick &^= localTick
	return here
}

// takeHere has the buckets of this process take p's charges.
func (l *Limiter) takeHere(ctx context.Context, p *part, nodes int64) error {
	for k := range p.index {
		if c := &p.charges[k]; !paidHere(c) {
			l.warm(ctx, c, nodes)
		}
	}
	err := l.local.Take(ctx, p.charges, p.out)
	for k := range p.index {
		d := &p.out[k]
		if err != nil {
			*d = undecided(&p.charges[k])
			continue
		}
		d.Origin = store.FromLocal
		if d.Tick != 0 {
			d.Tick |= localTick
		}
	}
	return err
}

// veto adds a charge that refuses the part whatever else it holds.
func (p *part) veto() {
	p.charges = append(p.charges, store.Charge{Key: p.charges[0].Key, Limit: noLimit, Hits: 1})
	p.out = append(p.out, store.Decision{})
}
