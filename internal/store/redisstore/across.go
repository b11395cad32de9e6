package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// A request over several slots is several calls. All slots are asked first, and nothing is booked; what they say is the
// answer if the request is refused. If it is admitted, all are charged, each only if what is there still fits. Who has
// lost a race by then, in any slot, is refused, and what the other slots had booked is given back. So what is admitted
// was booked everywhere, and the error is on the strict side, until the hits are back.

// GivesBack reports whether the store may give hits back that nobody asked it to: in a Cluster, of lost races.
func (s *Store) GivesBack() bool { return s.cluster != nil }

// A share is a request's charges of one slot, or of one key while their slot moves.
type share struct {
	slot    uint16
	key     *store.Key // nil: any of the slot
	index   []int      // of each charge in the request
	charges []store.Charge
	out     []store.Decision
	call    *call
	err     error // why out is not what Redis says
}

// takeInCluster takes a request at the lanes of its keys.
func (s *Store) takeInCluster(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	slot, one := slotOf(&charges[0].Key), true
	for i := range charges[1:] {
		one = one && slotOf(&charges[1+i].Key) == slot
	}
	// A call alone is ended by its lane in time; calls together have this deadline.
	deadline, byKey := time.Now().Add(s.timeout), false
	if one {
		err := s.takeAt(ctx, s.cluster.lane(slot), slot, charges, out)
		if byKey = redis.HasErrorPrefix(err, "TRYAGAIN"); !byKey {
			if err != nil {
				leaveUnpaid(charges, out)
			}
			return err
		}
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return s.takeAcross(ctx, divide(charges, byKey), charges, out)
}

// divide returns the shares of a request, by slot or by key.
func divide(charges []store.Charge, byKey bool) []*share {
	var shares []*share
	for i := range charges {
		c := &charges[i]
		slot := slotOf(&c.Key)
		at := slices.IndexFunc(shares, func(p *share) bool {
			return p.slot == slot && (p.key == nil || *p.key == c.Key)
		})
		if at < 0 {
			p := &share{slot: slot}
			if byKey {
				p.key = &c.Key
			}
			at, shares = len(shares), append(shares, p)
		}
		shares[at].add(i, c)
	}
	return shares
}

func (p *share) add(index int, c *store.Charge) {
	p.index = append(p.index, index)
	p.charges = append(p.charges, *c)
	p.out = append(p.out, store.Decision{})
}

// split returns a share a key, which a node that moves the slot takes.
func (p *share) split() []*share {
	shares := divide(p.charges, true)
	for _, q := range shares {
		for i := range q.index {
			q.index[i] = p.index[q.index[i]]
		}
	}
	return shares
}

// takeAcross takes the charges of a request that are divided into shares.
func (s *Store) takeAcross(ctx context.Context, shares []*share, charges []store.Charge, out []store.Decision) error {
	shares = s.exchangeAll(ctx, look, shares)
	copyOut(shares, charges, out)
	known := decided(shares, len(charges))
	refuses := refusing(charges, out, known)
	p, ahead := whole, []*share(nil)
	if slices.Contains(refuses, true) {
		p, ahead = refused, booksThough(shares, refuses)
	} else {
		ahead = reservable(shares)
	}
	if len(ahead) == 0 {
		return failure(shares, nil)
	}
	ahead = s.exchangeAll(ctx, p, ahead)
	copyOut(ahead, charges, out)
	if p == whole {
		for _, q := range ahead {
			for _, i := range q.index {
				known[i] = q.err == nil
			}
		}
		if refuses = refusing(charges, out, known); slices.Contains(refuses, true) {
			s.metrics.lostRace()
			s.giveBack(ahead, charges, out, refuses)
		}
	}
	return failure(shares, ahead)
}

// reservable returns the shares to be charged for a request that every slot had room for a moment ago.
func reservable(shares []*share) []*share {
	var going []*share
	for _, p := range shares {
		if p.err != nil {
			continue
		}
		for k := range p.charges {
			// Whether a group refuses is known once all slots have answered.
			if p.charges[k].Vote >= store.VoteQuota {
				p.charges[k].Vote = store.VoteNone
			}
		}
		going = append(going, p)
	}
	return going
}

// booksThough returns the shares of which something is booked although the request is refused.
func booksThough(shares []*share, refuses []bool) []*share {
	var going []*share
	for _, p := range shares {
		books := false
		for k, i := range p.index {
			c := &p.charges[k]
			c.Vote = store.VoteNone
			if refuses[i] {
				c.Vote = store.VoteEnforce
			}
			books = books || c.Book == store.BookAlways || c.Book == store.BookWhenRefuses && refuses[i]
		}
		if books && p.err == nil {
			going = append(going, p)
		}
	}
	return going
}

// exchangeAll sends a call for each share and waits for all. A share whose slot is on the move is taken key by key: the
// shares that it returns are those that were answered in the end.
func (s *Store) exchangeAll(ctx context.Context, p phase, shares []*share) []*share {
	s.exchangeOnce(ctx, p, shares)
	var settled, again []*share
	for _, q := range shares {
		if q.key == nil && len(q.charges) > 1 && redis.HasErrorPrefix(q.err, "TRYAGAIN") {
			again = append(again, q.split()...)
			q.err = nil // it is the parts' now
		} else {
			settled = append(settled, q)
		}
	}
	if len(again) > 0 {
		s.exchangeOnce(ctx, p, again)
		settled = append(settled, again...)
	}
	return settled
}

func (s *Store) exchangeOnce(ctx context.Context, p phase, shares []*share) {
	for _, q := range shares {
		c := s.idle.Get().(*call)
		q.call = c
		if q.err = c.encode(q.charges, p, s.now); q.err != nil {
			q.err = unsent(q.err)
			continue
		}
		c.slot = q.slot
		q.err = s.cluster.lane(q.slot).calls.offer(c, s.tuning.queue) // the others do not wait for a shard that does not answer
	}
	for _, q := range shares {
		if q.err == nil {
			q.err = q.call.await(ctx)
		}
		if late, ok := errors.AsType[*store.Late](q.err); ok {
			q.err = late.Unwrap() // what is heard of a part says nothing of the whole
		}
		if !q.call.abandoned() {
			s.collect(q.call, q.err, q.out)
		}
		q.call = nil
	}
}

// failure returns the error of a request: looked are the shares that were asked, booked those that were charged then. What
// only asks applies nothing.
func failure(looked, booked []*share) error {
	var errs []error
	applied := false
	for _, p := range looked {
		if p.err != nil && !slices.Contains(booked, p) {
			errs = append(errs, p.err)
		}
	}
	for _, p := range booked {
		applied = applied || !errors.Is(p.err, store.ErrUnsent)
		if p.err != nil {
			errs = append(errs, p.err)
		}
	}
	err := errors.Join(errs...)
	switch {
	case err == nil:
		return nil
	case applied:
		return mayBeApplied{err}
	case errors.Is(err, store.ErrUnsent):
		return err
	default:
		return unsent(err)
	}
}

// mayBeApplied is an error of a request of which some shares were paid: the others' ErrUnsent is not the request's.
type mayBeApplied struct{ err error }

func (e mayBeApplied) Error() string { return e.err.Error() }

func (e mayBeApplied) Is(target error) bool {
	return target != store.ErrUnsent && errors.Is(e.err, target)
}

// copyOut writes what shares were told, and Unpaid where they were not.
func copyOut(shares []*share, charges []store.Charge, out []store.Decision) {
	for _, p := range shares {
		for k, i := range p.index {
			if p.err != nil {
				out[i] = store.Unpaid(&charges[i])
			} else {
				out[i] = p.out[k]
			}
		}
	}
}

// decided says of which charges a decision was had.
func decided(shares []*share, charges int) []bool {
	known := make([]bool, charges)
	for _, p := range shares {
		for _, i := range p.index {
			known[i] = p.err == nil
		}
	}
	return known
}

// refusing says which charges refuse their request, by the decisions that are known: whoever decides the others corrects
// that. A group of which one is not known refuses nothing.
func refusing(charges []store.Charge, out []store.Decision, known []bool) []bool {
	var room [256]bool // by vote
	for i := range charges {
		room[charges[i].Vote] = room[charges[i].Vote] || !known[i] || out[i].Allowed
	}
	refuses := make([]bool, len(charges))
	for i := range charges {
		v := charges[i].Vote
		if !known[i] || out[i].Allowed || v == store.VoteNone {
			continue
		}
		refuses[i] = v == store.VoteEnforce || !room[v]
	}
	return refuses
}

// giveBack takes back what was booked for a request that has lost a race, and shows it as not booked. Nobody waits for
// it, but it goes ahead of what this process asks next.
func (s *Store) giveBack(shares []*share, charges []store.Charge, out []store.Decision, refuses []bool) {
	for _, p := range shares {
		back := share{slot: p.slot}
		for k, i := range p.index {
			c, d := p.charges[k], &out[i]
			if p.err != nil || d.Granted == 0 || c.Book == store.BookAlways || c.Book == store.BookWhenRefuses && refuses[i] {
				continue
			}
			c.Vote, c.Book, c.AtLeast = store.VoteNone, store.BookIfAdmitted, 0
			c.Hits, c.Tick = -d.Granted, d.Tick
			if c.Hits > 0 { // hits that had been given back are taken again, as many as there are
				c.AtLeast, c.Tick = 1, 0
			}
			back.add(i, &c)
			if d.Granted > 0 {
				d.Remaining += d.Granted
			}
			d.Granted, d.Tick, d.Delay = 0, 0, 0
		}
		if len(back.charges) > 0 {
			s.sendBack(&back)
		}
	}
}

// sendBack sends a share and does not wait.
func (s *Store) sendBack(p *share) {
	c := newCall()
	c.lost = s.metrics.lostHits
	if c.encode(p.charges, whole, s.now) != nil {
		return // they were encoded before
	}
	c.slot = p.slot
	if s.cluster.lane(p.slot).calls.offer(c, s.tuning.queue) != nil {
		c.lost()
	}
}
