package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// errUnpaid is what Take returns when a charge was not paid.
var errUnpaid = fmt.Errorf("limiter: %w", store.ErrUnavailable)

// localTick marks the Tick of a decision paid in this process, so that hits are given back where they were taken. Other
// ticks are below 2^53.
const localTick = 1 << 62

// paidHere reports whether c is paid in this process, whatever the store's state: its limit is each node's own, or it
// gives back what was taken here.
func paidHere(c *store.Charge) bool {
	return c.Policy != nil && c.Policy.NodeScope || c.Hits < 0 && c.Tick&localTick != 0
}

// kept reports whether c never goes to the store: it is paid here, or its key is not yet the one that all nodes derive.
func kept(c *store.Charge) bool { return paidHere(c) || c.Key.Provisional() }

// pay has the store take what it can and reports whether that was everything. If not, out says Unavailable where it was
// not, unsent are the charges that were surely not applied, and late, unless it is nil, will tell of the others.
func (l *Limiter) pay(ctx context.Context, charges []store.Charge, out []store.Decision, sent time.Duration) (paid bool, unsent chargeSet, late *store.Late) {
	whole := (l.shards == nil || l.shards.open.Load() == 0) && !l.owing(sent) && !l.travelling()
	for i := range charges {
		whole = whole && !kept(&charges[i])
	}
	if !whole {
		return l.paySome(ctx, charges, out, sent)
	}
	o, late := l.call(ctx, charges, 0, out, sent)
	switch o {
	case paidWhole:
		return true, unsent, nil
	case notSent:
		return false, allCharges, nil
	default:
		return false, unsent, late
	}
}

// paySome is pay where some charges are not to be sent at all, or others than the request's are.
func (l *Limiter) paySome(ctx context.Context, charges []store.Charge, out []store.Decision, sent time.Duration) (paid bool, unsent chargeSet, late *store.Late) {
	p := newPart()
	defer p.free()
	var absent votes
	var w wait
	defer w.end()
	for i := range charges {
		c := &charges[i]
		if kept(c) || l.shards != nil && l.shards.isOpen(c) || !w.until(ctx, l, c, sent) {
			out[i] = store.Unpaid(c)
			absent.add(c.Vote)
			unsent.add(i)
		}
	}
	if l.owing(sent) {
		l.addOwed(ctx, p, charges, &unsent)
	}
	owed := len(p.charges)
	for i := range charges {
		if !unsent.has(i) {
			p.add(i, charges[i])
		}
	}
	if len(p.charges) == owed {
		return false, unsent, nil
	}
	p.abstain(&absent)
	o, late := l.call(w.context(ctx, l, sent), p.charges, owed, p.out, sent)
	p.copyTo(out)
	if o == notSent {
		unsent = allCharges
	}
	return o == paidWhole && unsent == chargeSet{}, unsent, late
}

// What became of a call of the store.
type outcome uint8

const (
	paidWhole outcome = iota
	perhaps           // some charges were not paid, as far as is known
	notSent           // none was, for sure
)

// call calls the store once, tells the breakers how it went and remembers what the store said, or says later: then it
// returns what will tell so. The first charges, owed of them, hand over what was granted here.
func (l *Limiter) call(ctx context.Context, charges []store.Charge, owed int, out []store.Decision, sent time.Duration) (outcome, *store.Late) {
	if l.inFlight.Add(1) > l.most {
		l.inFlight.Add(-1)
		l.metrics.saturated.Inc()
		leaveUnpaid(charges, out)
		l.arrived(charges[:owed], true)
		return notSent, nil
	}
	var err error
	if l.ownTimer {
		err = l.store.Take(ctx, charges, out)
		l.inFlight.Add(-1)
	} else {
		err = l.guarded(ctx, charges, out)
	}
	at := l.now()
	if err != nil && (!errors.Is(err, store.ErrUnavailable) || !anyUnpaid(out)) {
		leaveUnpaid(charges, out) // of such an error no decision is to be believed
	}
	// A call that its own caller cut short says nothing about the store, unless it was slow already.
	cutShort := err != nil && ctx.Err() != nil && at-sent < l.timeout/2
	if l.shards != nil && !cutShort {
		l.shards.report(charges, out, at)
	}
	if late := lateOf(err); late != nil {
		l.listen(late, charges, owed, sent)
		return perhaps, late
	}
	unsent := err != nil && errors.Is(err, store.ErrUnsent)
	l.arrived(charges[:owed], unsent)
	if l.recent != nil {
		l.recent.note(charges, out, sent, at)
	}
	switch {
	case err == nil:
		return paidWhole, nil
	case unsent:
		return notSent, nil
	default:
		return perhaps, nil
	}
}

// lateOf returns what will tell of a call that ended with err; nil if nothing will.
func lateOf(err error) *store.Late {
	if err == nil {
		return nil
	}
	var late *store.Late
	errors.As(err, &late)
	return late
}

// listen remembers what the store says of charges when their caller has left.
func (l *Limiter) listen(late *store.Late, charges []store.Charge, owed int, sent time.Duration) {
	if l.recent == nil {
		return
	}
	charges = slices.Clone(charges)
	late.Then(func(out []store.Decision, err error) {
		l.arrived(charges[:owed], errors.Is(err, store.ErrUnsent))
		if err == nil {
			l.recent.note(charges, out, sent, l.now())
		}
	})
}

func anyUnpaid(out []store.Decision) bool {
	for i := range out {
		if out[i].Origin == store.Unavailable {
			return true
		}
	}
	return false
}

func leaveUnpaid(charges []store.Charge, out []store.Decision) {
	for i := range charges {
		out[i] = store.Unpaid(&charges[i])
	}
}

// A part is some charges of a request, as their own request.
type part struct {
	charges []store.Charge
	out     []store.Decision
	index   []int // of each charge in the whole request; -1 for what is not of it
}

var parts = sync.Pool{New: func() any { return new(part) }}

func newPart() *part { return parts.Get().(*part) }

func (p *part) free() {
	clear(p.charges) // of pointers to limits
	p.charges, p.out, p.index = p.charges[:0], p.out[:0], p.index[:0]
	parts.Put(p)
}

func (p *part) add(index int, c store.Charge) {
	p.charges = append(p.charges, c)
	p.out = append(p.out, store.Decision{})
	p.index = append(p.index, index)
}

// abstain takes the vote of every quota group that others, not in this part, belong to as well: whether such a group
// refuses cannot be decided here.
func (p *part) abstain(others *votes) {
	for i := range p.charges {
		if v := &p.charges[i].Vote; *v >= store.VoteQuota && others.has(*v) {
			*v = store.VoteNone
		}
	}
}

func (p *part) copyTo(out []store.Decision) {
	for k, i := range p.index {
		if i >= 0 {
			out[i] = p.out[k]
		}
	}
}

// votes is a set of votes.
type votes [4]uint64

func (s *votes) add(v store.Vote)      { s[v/64] |= 1 << (v % 64) }
func (s *votes) has(v store.Vote) bool { return s[v/64]&(1<<(v%64)) != 0 }

// chargeSet is a set of a request's charges, by index.
type chargeSet [store.MaxCharges / 64]uint64

var allCharges = chargeSet{1<<64 - 1, 1<<64 - 1}

func (s *chargeSet) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *chargeSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
