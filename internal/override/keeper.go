package override

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/ledger"
)

// fieldPrefix begins the fields of overrides in the ledger; the rest of a field is the ID.
const fieldPrefix = "override/"

// A ledger that does not answer must not hold up what runs out next.
const (
	sweepTimeout = time.Second
	sweepRetry   = 5 * time.Second
)

// ErrUnknown says that there is no such override, or no longer.
var ErrUnknown = errors.New("no such override")

// Options configures New. Ledger and Apply must be given.
type Options struct {
	Ledger *ledger.Ledger

	// Apply makes the overrides current, all of them and no others, in the order of their IDs. It is called whenever
	// they change, one call at a time, and keeps the slice.
	Apply func([]*Override)

	// Kept holds what an earlier process left, which is in force until the ledger has been read; Keep, if set, is called
	// with what to leave to the next.
	Kept []byte
	Keep func([]byte) error

	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: slog.Default()
	Now        func() time.Time      // nil: time.Now
}

// Keeper knows the overrides that are in force. Safe for concurrent use. Made by New.
type Keeper struct {
	o   Options
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	all     []*Override // as the ledger has them, in the order of their IDs
	seq     int64       // of the ledger's state that was applied last
	current []*Override // those that have not run out
	applied bool
}

// New returns a keeper, and applies what an earlier process left.
func New(o Options) (*Keeper, error) {
	k := &Keeper{o: o, log: o.Logger, now: o.Now}
	if k.log == nil {
		k.log = slog.Default()
	}
	if k.now == nil {
		k.now = time.Now
	}
	if o.Registerer != nil {
		err := o.Registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ratelimitd_overrides_active", Help: "Overrides by operators that are in force on this node.",
		}, func() float64 { return float64(len(k.Current())) }))
		if err != nil {
			return nil, fmt.Errorf("register override metrics: %w", err)
		}
	}
	if len(o.Kept) > 0 {
		var kept map[string]string
		if err := json.Unmarshal(o.Kept, &kept); err != nil {
			k.log.Error("overrides of an earlier start cannot be read", "error", err)
		}
		k.learn(ledger.State{Fields: kept}, false)
	}
	return k, nil
}

// Current returns the overrides that are in force, in the order of their IDs.
func (k *Keeper) Current() []*Override {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// Seq returns the number of the last entry of the audit log that this node has acted on; 0: none yet.
func (k *Keeper) Seq() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seq
}

// Await blocks until this node has acted on an entry of the audit log, for a second at most: whoever made a change finds it
// in force where it was made.
func (k *Keeper) Await(ctx context.Context, seq int64) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for k.Seq() < seq {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Sync blocks until this node has acted on all that the ledger says now. The error says that it has not, within a second or
// at all: then the ledger may have overrides that Current lacks.
func (k *Keeper) Sync(ctx context.Context) error {
	st, err := k.o.Ledger.State(ctx)
	if err != nil {
		return err
	}
	k.Await(ctx, st.Seq)
	if seq := k.Seq(); seq < st.Seq {
		return fmt.Errorf("this node has acted on entry %d of %d: %w", seq, st.Seq, ledger.ErrUnavailable)
	}
	return nil
}

// Run keeps the overrides current until ctx ends: it follows the ledger, ends those that have run out to the moment, and
// has the audit log say of each of them, once, that it has.
func (k *Keeper) Run(ctx context.Context) {
	states, watched := k.o.Ledger.States(ctx, func(err error) {
		k.log.Warn("overrides cannot be read, the last ones stay", "error", err)
	})
	defer watched()
	t := time.NewTimer(k.untilEnd())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case st := <-states:
			k.learn(st, true)
		case <-t.C:
			k.apply()
		}
		wait := k.untilEnd()
		if !k.sweep(ctx) {
			wait = min(wait, sweepRetry)
		}
		t.Reset(wait)
	}
}

// learn takes over what the ledger says.
func (k *Keeper) learn(st ledger.State, keep bool) {
	all := of(st, k.log)
	k.mu.Lock()
	k.all = all
	k.mu.Unlock()
	k.apply()
	k.mu.Lock()
	k.seq = st.Seq
	k.mu.Unlock()
	if keep && k.o.Keep != nil {
		kept := make(map[string]string, len(all))
		for _, o := range all {
			kept[fieldPrefix+o.ID] = st.Fields[fieldPrefix+o.ID]
		}
		text, err := json.Marshal(kept)
		if err == nil {
			err = k.o.Keep(text)
		}
		if err != nil {
			k.log.Error("overrides cannot be kept for the next start", "error", err)
		}
	}
}

// apply makes current those that have not run out.
func (k *Keeper) apply() {
	k.mu.Lock()
	defer k.mu.Unlock()
	current := inForce(k.all, k.now())
	same := slices.EqualFunc(current, k.current, func(a, b *Override) bool { return *a == *b })
	if same && k.applied {
		return
	}
	k.current, k.applied = current, true
	k.o.Apply(current)
}

// untilEnd returns how long until the next override runs out, an hour at most.
func (k *Keeper) untilEnd() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := time.Hour
	for _, o := range k.current {
		wait = min(wait, o.Expires.Sub(k.now()))
	}
	return max(wait, time.Millisecond)
}

// sweep has the ledger forget those that have run out; one of all nodes does it. It reports whether the ledger answered.
func (k *Keeper) sweep(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	k.mu.Lock()
	all, now := k.all, k.now()
	k.mu.Unlock()
	for _, o := range all {
		if o.Expires.After(now) {
			continue
		}
		field := fieldPrefix + o.ID
		_, err := k.o.Ledger.Commit(ctx, func(st ledger.State) (*ledger.Change, error) {
			if st.Fields[field] != o.encode() {
				return nil, ErrUnknown // another node was faster, or it was set anew
			}
			return &ledger.Change{
				Who: "ratelimitd", What: "override.expired", On: o.Target(),
				Why: "it ended " + o.Expires.Format(time.RFC3339), Before: o.encode(), Set: map[string]string{field: ""},
			}, nil
		})
		if err != nil && !errors.Is(err, ErrUnknown) && ctx.Err() == nil {
			// It no longer applies, here or anywhere; only the log lacks it, until the next sweep.
			k.log.Warn("the audit log was not told that an override has run out, trying on", "id", o.ID, "error", err)
			return false
		}
	}
	return ctx.Err() == nil
}

// Set keeps an override, in place of one with the same target, and returns it as it is kept. If it returns nil, all
// nodes that reach the ledger have it soon, this one too. An error of Prepare is the caller's; if expect is not 0 and the last entry
// of the audit log has another number, it is ledger.ErrConflict.
func (k *Keeper) Set(ctx context.Context, o Override, who string, expect int64) (*Override, *ledger.Entry, error) {
	if err := o.Prepare(k.now()); err != nil {
		return nil, nil, &InvalidError{err}
	}
	field := fieldPrefix + o.ID
	e, err := k.o.Ledger.Commit(ctx, func(st ledger.State) (*ledger.Change, error) {
		if expect != 0 && expect != st.Seq {
			return nil, ledger.ErrConflict
		}
		if count(st) >= MaxCount && st.Fields[field] == "" {
			return nil, &InvalidError{fmt.Errorf("there are %d overrides already: want rules for so many", MaxCount)}
		}
		return &ledger.Change{
			Who: who, What: "override.set", On: o.Target(), Why: o.Reason,
			Before: st.Fields[field], After: o.encode(), Set: map[string]string{field: o.encode()},
		}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return &o, e, nil
}

// Remove ends an override. ErrUnknown: there is none with that ID. expect is as in Set.
func (k *Keeper) Remove(ctx context.Context, id, who, reason string, expect int64) (*ledger.Entry, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, &InvalidError{errors.New("reason: want why this is done")}
	}
	field := fieldPrefix + id
	return k.o.Ledger.Commit(ctx, func(st ledger.State) (*ledger.Change, error) {
		before := st.Fields[field]
		switch {
		case expect != 0 && expect != st.Seq:
			return nil, ledger.ErrConflict
		case before == "":
			return nil, ErrUnknown
		}
		on := id
		if o, err := decode(before); err == nil {
			on = o.Target()
		}
		return &ledger.Change{
			Who: who, What: "override.removed", On: on, Why: reason, Before: before, Set: map[string]string{field: ""},
		}, nil
	})
}

func count(st ledger.State) (n int) {
	for field := range st.Fields {
		if strings.HasPrefix(field, fieldPrefix) {
			n++
		}
	}
	return n
}

// InvalidError says that an override is not one. It has every mistake, one a line.
type InvalidError struct{ Err error }

// Error returns the mistakes.
func (e *InvalidError) Error() string { return e.Err.Error() }

// Unwrap returns them joined.
func (e *InvalidError) Unwrap() error { return e.Err }
