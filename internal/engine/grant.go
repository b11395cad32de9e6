package engine

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Granted is a bucket that hits were given back to.
type Granted struct {
	Limit     string // the name of its limit, for people
	Key       string // as Redis sees it
	Remaining int64
	Unpaid    bool // the store could not be asked: nothing, or everything, was given back
}

// Grant gives hits back to every bucket that req would charge, whatever its limit says of refunds: never more than were
// spent, and in the current window only. 0 is all of them. Its errors are Decide's; a request that is blocked or makes
// too many charges has no buckets.
func (e *Engine) Grant(ctx context.Context, req *Request, hits int64) ([]Granted, error) {
	v, err := e.current(req)
	if err != nil {
		return nil, err
	}
	p := new(plan)
	p.plan(e, v, req)
	if p.tooMany || len(p.charges) == 0 {
		return nil, nil
	}
	if hits <= 0 || hits > bucket.MaxCost {
		hits = bucket.MaxCost
	}
	for j := range p.charges {
		c := &p.charges[j]
		c.Hits, c.Vote, c.Book = -hits, store.VoteNone, store.BookIfAdmitted
	}
	e.ask(ctx, p)
	out := make([]Granted, len(p.charges))
	for j := range p.charges {
		d := &p.decisions[j]
		out[j] = Granted{
			Limit: p.charges[j].Policy.Rule, Key: p.charges[j].Key.String(),
			Remaining: int64(clampHits(d.Remaining)), Unpaid: d.Origin == store.Unavailable,
		}
	}
	return out, nil
}
