package config

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/ledger"
)

// What a Recorder keeps in the ledger: the hash that it last recorded, and the digest of the last refusal.
const (
	loadedField  = "loaded"
	refusedField = "refused"
)

// maxUnrecorded bounds the changes that wait for a ledger that does not answer.
const maxUnrecorded = 1000

// Recorder writes what becomes of versions of the rules into the audit log: once a content, not once a node, since all
// nodes that share the log see the same files. Rules that people publish are in it already, by who published them. Safe
// for concurrent use. Made by NewRecorder.
type Recorder struct {
	ledger *ledger.Ledger
	log    *slog.Logger
	poke   chan struct{}

	mu      sync.Mutex
	waiting []Change
}

// NewRecorder returns one that writes to l. log may be nil: slog.Default().
func NewRecorder(l *ledger.Ledger, log *slog.Logger) *Recorder {
	if log == nil {
		log = slog.Default()
	}
	return &Recorder{ledger: l, log: log, poke: make(chan struct{}, 1)}
}

// Changed notes a change for Run to write. It does not block; it is meant for Options.Changed.
func (r *Recorder) Changed(c Change) {
	if c.Origin == OriginPublished && c.Err == nil || errors.Is(c.Err, ErrNotPublished) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == maxUnrecorded {
		r.log.Error("the audit log was not told of a change of the rules", "origin", c.Origin, "hash", c.After)
		return
	}
	r.waiting = append(r.waiting, c)
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// Run writes what Changed noted, in its order, until ctx ends; what the ledger does not take now it offers again every
// second.
func (r *Recorder) Run(ctx context.Context) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.poke:
		case <-t.C:
		}
		wait := time.Hour
		for {
			r.mu.Lock()
			list := r.waiting
			r.mu.Unlock()
			if len(list) == 0 {
				break
			}
			if err := r.record(ctx, list[0]); err != nil {
				if !failing && ctx.Err() == nil {
					r.log.Warn("the audit log cannot be told of a change of the rules, trying on", "error", err)
				}
				failing, wait = true, time.Second
				break
			}
			failing = false
			r.mu.Lock()
			r.waiting = r.waiting[1:]
			r.mu.Unlock()
		}
		t.Reset(wait)
	}
}

var errRecorded = errors.New("recorded already")

func (r *Recorder) record(ctx context.Context, c Change) error {
	_, err := r.ledger.Commit(ctx, func(st ledger.State) (*ledger.Change, error) {
		out := &ledger.Change{Who: c.Origin, On: c.Version, Before: st.Fields[loadedField]}
		if c.Err != nil {
			text := c.Err.Error()
			digest := ledger.Digest(c.Origin + "\x00" + c.Version + "\x00" + text)
			out.What, out.Why, out.After = "rules.refused", short(text), out.Before
			out.Set = map[string]string{refusedField: digest}
			if st.Fields[refusedField] == digest {
				return nil, errRecorded
			}
			return out, nil
		}
		out.What, out.After, out.Set = "rules.loaded", c.After, map[string]string{loadedField: c.After}
		if st.Fields[loadedField] == c.After {
			return nil, errRecorded
		}
		return out, nil
	})
	if errors.Is(err, errRecorded) {
		return nil
	}
	return err
}

// short cuts an error of many lines to what an entry holds.
func short(s string) string {
	const most = 2000
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
