package limiter

import (
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// millionths is the whole that a local fraction is a part of.
const millionths = 1_000_000

// share says which part of a limit this node enforces by itself: ⌈hits ÷ nodes⌉, and of that, rounded down, so many
// millionths; at least 1 hit.
type share struct {
	nodes      int64
	millionths int64
}

// of returns s's part of hits. What grants nothing still grants nothing.
func (s share) of(hits int64) int64 {
	if hits == 0 {
		return 0
	}
	part := (hits + s.nodes - 1) / s.nodes
	return max(1, part*s.millionths/millionths)
}

// maxShares bounds the derived limits that are kept. Limits that come in requests could be without number.
const maxShares = 4096

// shares derives limits and keeps them. Safe for concurrent use; the zero value is ready.
type shares struct {
	mu     sync.RWMutex
	limits map[shareOf]*bucket.Limit
}

type shareOf struct {
	config bucket.Config
	share  share
}

// limit returns s's part of l: an equal limit of fewer hits, burst and debt.
func (d *shares) limit(l *bucket.Limit, s share) *bucket.Limit {
	k := shareOf{l.Config(), s}
	d.mu.RLock()
	part := d.limits[k]
	d.mu.RUnlock()
	if part != nil {
		return part
	}
	c := k.config
	c.Hits, c.Burst = s.of(c.Hits), s.of(c.Burst)
	c.Debt = share{s.nodes, millionths}.of(c.Debt) // a smaller debt would be the more generous one
	part = mustLimit(c)                            // a limit is refused for being large, never for being small
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limits == nil || len(d.limits) >= maxShares {
		d.limits = make(map[shareOf]*bucket.Limit)
	}
	d.limits[k] = part
	return part
}
