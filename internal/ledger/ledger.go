package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
)

// ErrConflict says that others changed the state again and again while this change was being made.
var ErrConflict = errors.New("changed by others at the same time")

// ErrUnavailable says that the store of the ledger could not be reached, did not answer in time, or cannot answer now.
var ErrUnavailable = errors.New("not available")

// attempts bounds how often a change is made anew on what others made of the state meanwhile.
const attempts = 50

// State is the settings at one moment. Its maps are read only.
type State struct {
	Seq    int64  // of the last entry; 0 before the first
	Hash   string // of the last entry
	Fields map[string]string
}

// Change is a change of settings, and what the audit log is to say of it.
type Change struct {
	Who, What, On, Why string
	Before, After      string
	Set                map[string]string // fields and their new values; "" takes one away
	Blobs              map[string]string // large values to keep, by their Digest
	Drop               []string          // digests of large values to forget
}

// backend keeps state and log. Its methods are safe for concurrent use.
type backend interface {
	state(ctx context.Context) (State, error)
	// commit writes e and its change if e follows the last entry; false: it does not, and nothing is written.
	commit(ctx context.Context, e *Entry, c *Change) (bool, error)
	// entries calls yield with up to n entries as they are at one moment, in order: from seq on, or from the oldest if seq
	// is no longer kept.
	entries(ctx context.Context, seq int64, n int, yield func(*Entry)) error
	blob(ctx context.Context, digest string) (string, error)
	close() error
}

// Options configures a Ledger. The zero value is usable.
type Options struct {
	Node  string           // names this process in entries
	Space string           // in Redis: keeps ledgers of several deployments apart; "" is one like any other
	Poll  time.Duration    // how often Watch looks although nobody told it to; 0: 30 s
	Now   func() time.Time // nil: time.Now

	// Heard is called whenever another process, or this one, has made a change or announced something, and when it may
	// have been missed. It must not block. nil: nobody listens.
	Heard func()
}

// Ledger is the settings and their audit log. Safe for concurrent use. Made by NewRedis or OpenFile.
type Ledger struct {
	backend backend
	o       Options
	keep    int64 // most entries that are kept; 0: all

	mu       sync.Mutex // guards the rest
	watchers map[chan struct{}]struct{}
	own      Report
	ownErr   error // the others were not told of own

	clock sync.Mutex
	last  time.Time // of an entry; guarded by clock
}

func newLedger(b backend, o Options) *Ledger {
	if o.Poll == 0 {
		o.Poll = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Ledger{backend: b, o: o, watchers: map[chan struct{}]struct{}{}}
}

// Close ends it; the client of NewRedis stays open.
func (l *Ledger) Close() error { return l.backend.close() }

// Node returns the name of this process in entries.
func (l *Ledger) Node() string { return l.o.Node }

// State returns the settings as they are now.
func (l *Ledger) State(ctx context.Context) (State, error) { return l.backend.state(ctx) }

// Blob returns a large value that a Change kept. An error says that it is not there, or not what it was.
func (l *Ledger) Blob(ctx context.Context, digest string) (string, error) {
	value, err := l.backend.blob(ctx, digest)
	if err != nil {
		return "", err
	}
	if Digest(value) != digest {
		return "", fmt.Errorf("value %.12s…: altered since it was kept", digest)
	}
	return value, nil
}

// Commit makes a change: decide is told the state and returns what to do about it, or why nothing can be done. If others
// are faster it is asked again with what they left, so it must have no effect of its own. When Commit returns an entry,
// it and its change are kept, and everybody who watches is being told. An error that is neither decide's nor ErrConflict
// is the store's; if it is ErrUnavailable, the change may have been made.
func (l *Ledger) Commit(ctx context.Context, decide func(State) (*Change, error)) (*Entry, error) {
	for range attempts {
		st, err := l.State(ctx)
		if err != nil {
			return nil, err
		}
		c, err := decide(st)
		if err != nil {
			return nil, err
		}
		e := l.entry(st, c)
		done, err := l.backend.commit(ctx, e, c)
		if err != nil || !done {
			// Perhaps it was made, and only the answer was lost. Not to know is no reason to make it again.
			var lost error
			if done, lost = l.has(ctx, e); !done && (err != nil || lost != nil) {
				return nil, errors.Join(err, lost)
			}
		}
		if done {
			l.Nudge()
			return e, nil
		}
	}
	return nil, ErrConflict
}

// entry writes the entry of a change that follows st.
func (l *Ledger) entry(st State, c *Change) *Entry {
	e := &Entry{
		Seq: st.Seq + 1, Time: l.now(), Node: valid(l.o.Node),
		Who: valid(c.Who), What: valid(c.What), On: valid(c.On), Why: valid(c.Why), Before: valid(c.Before), After: valid(c.After),
		Prev: st.Hash,
	}
	if len(c.Set) > 0 {
		e.Sets = maps.Clone(c.Set)
		for field, value := range e.Sets {
			if value != "" {
				e.Sets[field] = Digest(value)
			}
		}
	}
	e.Hash = e.seal()
	return e
}

// now returns the time of an entry, later than that of any before: two that are alike but for it are told apart.
func (l *Ledger) now() time.Time {
	l.clock.Lock()
	defer l.clock.Unlock()
	now := l.o.Now().UTC().Truncate(time.Microsecond)
	if least := l.last.Add(time.Microsecond); now.Before(least) {
		now = least
	}
	l.last = now
	return now
}

// valid returns s as JSON keeps it.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// has reports whether e is in the log. The error says that it is not known.
func (l *Ledger) has(ctx context.Context, e *Entry) (found bool, err error) {
	var there Entry
	err = l.backend.entries(ctx, e.Seq, 1, func(other *Entry) { there = *other })
	if err == nil && there.Seq > e.Seq {
		err = fmt.Errorf("whether entry %d was written is not known: it is no longer kept", e.Seq)
	}
	return err == nil && there.Hash == e.Hash, err
}

// Entries returns up to n entries, in order: from seq on, or from the oldest if seq is no longer kept.
func (l *Ledger) Entries(ctx context.Context, seq int64, n int) ([]*Entry, error) {
	var out []*Entry
	err := l.backend.entries(ctx, seq, n, func(e *Entry) { out = append(out, e) })
	return out, err
}

// Last returns the last n entries, in order.
func (l *Ledger) Last(ctx context.Context, n int) ([]*Entry, error) {
	st, err := l.State(ctx)
	if err != nil {
		return nil, err
	}
	return l.Entries(ctx, max(st.Seq-int64(n)+1, 1), n)
}
