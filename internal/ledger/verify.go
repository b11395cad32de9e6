package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
)

// BrokenError says where the audit log is not what was written.
type BrokenError struct {
	Seq int64  // of the first entry that is wrong, or that should be there
	Why string // what is wrong with it
}

// Error names the entry.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("audit log broken at entry %d: %s", e.Seq, e.Why)
}

// Verified is what Verify found to be whole.
type Verified struct {
	First   int64 // the oldest entry that is kept; 0: none
	Last    int64
	Hash    string // of the last: noted elsewhere, it shows later that nobody wrote the log anew
	Entries int64
}

// page is how many entries Verify reads at a time.
const page = 1000

// errOvertaken says that entries still to be read went, because there were too many new ones.
var errOvertaken = errors.New("log was overtaken")

// Verify reads the whole log: every entry must follow the one before it, be what was written, and the settings must be
// what the last entry that set each of them says. The error is a *BrokenError at the first that is not so, or of a store
// that cannot be read. Changes meanwhile are no error, save ErrConflict when they are faster than the reading.
func (l *Ledger) Verify(ctx context.Context) (*Verified, error) {
	for range attempts {
		if v, err := l.verify(ctx); !errors.Is(err, errOvertaken) {
			return v, err
		}
	}
	return nil, ErrConflict
}

// verify is Verify of the log as it is now; what is added to it meanwhile is left for another time.
func (l *Ledger) verify(ctx context.Context) (*Verified, error) {
	st, err := l.State(ctx)
	if err != nil {
		return nil, err
	}
	c := &chain{sets: map[string]string{}}
	for c.last.Seq < st.Seq {
		var wrong error
		var gap bool
		n := c.last.Seq
		err := l.backend.entries(ctx, n+1, int(min(page, st.Seq-n)), func(e *Entry) {
			switch {
			case wrong != nil || gap || c.last.Seq == st.Seq:
			case c.last.Seq == n && e.Seq > n+1 && (n > 0 || e.Seq > st.Seq):
				gap = true
			default:
				wrong = c.add(e)
			}
		})
		switch {
		case wrong != nil:
			return nil, wrong
		case err != nil:
			return nil, err
		case gap:
			return nil, l.overtaken(ctx, n+1)
		case c.last.Seq == n:
			return nil, &BrokenError{Seq: n + 1, Why: fmt.Sprintf("missing, the log should end with entry %d", st.Seq)}
		}
	}
	if c.last.Hash != st.Hash {
		return nil, &BrokenError{Seq: st.Seq, Why: "not the entry that the settings were made by"}
	}
	if err := c.agrees(st); err != nil {
		return nil, err
	}
	if err := l.ends(ctx, st.Seq); err != nil {
		return nil, err
	}
	v := &Verified{First: c.first, Last: c.last.Seq, Hash: c.last.Hash}
	if c.first > 0 {
		v.Entries = c.last.Seq - c.first + 1
	}
	if c.first > 1 && v.Entries < l.keep {
		// Those that were added since push out as many.
		now, err := l.State(ctx)
		if err != nil {
			return nil, err
		}
		if now.Seq-c.first+1 < l.keep {
			return nil, &BrokenError{Seq: c.first - 1, Why: "missing, although the log has room for it"}
		}
	}
	return v, nil
}

// ends returns an error if there are entries behind seq that the settings were not made by: then it is the settings that went.
func (l *Ledger) ends(ctx context.Context, seq int64) error {
	more, err := l.Entries(ctx, seq+1, 1)
	if err != nil || len(more) == 0 {
		return err
	}
	now, err := l.State(ctx)
	if err != nil || more[0].Seq <= now.Seq { // it was made meanwhile
		return err
	}
	return &BrokenError{Seq: more[0].Seq, Why: "the settings do not know of it"}
}

// overtaken says why a later entry came when seq was wanted: everything before it went, or it has another's place.
func (l *Ledger) overtaken(ctx context.Context, seq int64) error {
	oldest, err := l.Entries(ctx, 1, 1)
	if err != nil {
		return err
	}
	now, err := l.State(ctx)
	if err != nil {
		return err
	}
	if len(oldest) > 0 && oldest[0].Seq > seq && oldest[0].Seq <= now.Seq {
		return errOvertaken
	}
	return &BrokenError{Seq: seq, Why: "another entry stands in its place"}
}

// chain checks entries one by one. The zero value, with a map, is before the first.
type chain struct {
	first int64
	last  Entry
	sets  map[string]string // what each field was set to last
}

func (c *chain) add(e *Entry) error {
	switch {
	case c.first == 0 && e.Seq > 1:
		// The entries before it went because there were too many.
		c.first = e.Seq
	case c.first == 0:
		c.first = 1
		fallthrough
	default:
		if e.Seq != c.last.Seq+1 {
			return &BrokenError{Seq: c.last.Seq + 1, Why: fmt.Sprintf("entry %d stands in its place", e.Seq)}
		}
		if e.Prev != c.last.Hash {
			return &BrokenError{Seq: e.Seq, Why: "does not follow the entry before it"}
		}
	}
	if e.Hash != e.seal() {
		return &BrokenError{Seq: e.Seq, Why: "altered since it was written"}
	}
	maps.Copy(c.sets, e.Sets)
	c.last = *e
	return nil
}

// agrees reports whether the settings are what the log says; of those set before the oldest entry it cannot know.
func (c *chain) agrees(st State) error {
	for field, digest := range c.sets {
		if value := st.Fields[field]; value == "" && digest != "" || value != "" && Digest(value) != digest {
			return &BrokenError{Seq: st.Seq, Why: fmt.Sprintf("setting %q is not what the log says it is", field)}
		}
	}
	for field := range st.Fields {
		if _, ok := c.sets[field]; !ok && c.first <= 1 {
			return &BrokenError{Seq: st.Seq, Why: fmt.Sprintf("setting %q was made by no entry", field)}
		}
	}
	return nil
}
