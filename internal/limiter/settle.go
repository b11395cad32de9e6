package limiter

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// maxSettling bounds the corrections under way.
const maxSettling = 256

// settle makes what the store booked agree with the verdict, of which it saw only its own part: it gives back what the store
// booked for a request that was refused here, and charges what it left for a request that passes. The store is told in the
// background, once; a correction that is lost, when the store fails again, is counted.
func (l *Limiter) settle(ctx context.Context, charges []store.Charge, out []store.Decision) {
	admitted := store.Admitted(charges, out)
	var owed []store.Charge
	for i := range charges {
		c, d := &charges[i], &out[i]
		if d.Origin != store.FromStore || c.Hits <= 0 || c.Book == store.BookAlways || !d.Allowed {
			continue
		}
		correction := *c
		correction.Vote, correction.Book = store.VoteNone, store.BookIfAdmitted
		switch {
		case !admitted && d.Granted > 0:
			correction.Hits, correction.AtLeast, correction.Tick = -d.Granted, 0, d.Tick
			d.Remaining = min(d.Remaining+d.Granted, bucket.MaxHits)
			d.Granted, d.Tick, d.Delay = 0, 0, 0
		case admitted && d.Granted == 0:
			d.Remaining = max(0, d.Remaining-c.Hits)
		default:
			continue
		}
		owed = append(owed, correction)
	}
	if len(owed) == 0 {
		return
	}
	if l.settling.Add(1) > maxSettling || !l.bg.start(func() { l.correct(ctx, owed) }) {
		l.settling.Add(-1)
		l.metrics.unsettled.Inc()
	}
}

// correct tells the store.
func (l *Limiter) correct(ctx context.Context, owed []store.Charge) {
	defer l.settling.Add(-1)
	if o, _ := l.call(ctx, owed, 0, make([]store.Decision, len(owed)), l.now()); o != paidWhole {
		l.metrics.unsettled.Inc()
	}
}
