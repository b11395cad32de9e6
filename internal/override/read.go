package override

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/ledger"
)

// Read returns the overrides that a ledger has and that have not run out, in the order of their IDs, for who only looks
// once. One that is none is left out, and log says so.
func Read(ctx context.Context, l *ledger.Ledger, now time.Time, log *slog.Logger) ([]*Override, error) {
	st, err := l.State(ctx)
	if err != nil {
		return nil, err
	}
	return inForce(of(st, log), now), nil
}

// of returns the overrides in a state, in the order of their IDs.
func of(st ledger.State, log *slog.Logger) (all []*Override) {
	for _, field := range slices.Sorted(maps.Keys(st.Fields)) {
		id, ok := strings.CutPrefix(field, fieldPrefix)
		if !ok {
			continue
		}
		o, err := decode(st.Fields[field])
		if err != nil {
			log.Error("override ignored", "id", id, "error", err)
			continue
		}
		o.ID = id
		all = append(all, o)
	}
	return all
}

// inForce returns those of all that have not run out.
func inForce(all []*Override, now time.Time) (current []*Override) {
	for _, o := range all {
		if o.Expires.After(now) {
			current = append(current, o)
		}
	}
	return current
}
