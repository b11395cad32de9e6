package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// take has the store take the charges of p, and holds the answer where a queue says so.
func (e *Engine) take(ctx context.Context, p *plan) {
	switch {
	case p.blocked != nil:
		return
	case p.tooMany:
		p.admitted = !p.enforces()
		return
	}
	if e.shadow || !p.queued {
		e.ask(ctx, p) // who refuses nothing holds nothing up either
		return
	}
	if e.queue.enter(ctx, p) {
		defer e.queue.leave()
	}
	e.ask(ctx, p)
	if p.admitted {
		e.hold(ctx, p)
	}
}

// enforces reports whether any limit of the request is more than a shadow.
func (p *plan) enforces() bool {
	return slices.ContainsFunc(p.owners, func(o owner) bool {
		r := p.matches[o.match].rule
		return r == nil || !r.Shadow
	})
}

// ask takes the charges and decides admission.
func (e *Engine) ask(ctx context.Context, p *plan) {
	p.decisions = slices.Grow(p.decisions[:0], len(p.charges))[:len(p.charges)]
	clear(p.decisions)
	if len(p.charges) > 0 {
		err := e.store.Take(ctx, p.charges, p.decisions)
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			// A store that breaks its contract has answered nothing we may trust.
			for i := range p.charges {
				p.decisions[i] = store.Unpaid(&p.charges[i])
			}
		}
	}
	p.admitted = store.Admitted(p.charges, p.decisions)
}
