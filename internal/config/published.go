package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/ledger"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// OriginPublished is the origin of updates from Published.
const OriginPublished = "redis"

// KeptVersions is how many published versions can be rolled back to.
const KeptVersions = 20

const (
	publishedField  = "rules"  // of the ledger: the current version
	publishedPrefix = "rules/" // and each of the last ones, by its number
	publishedRetry  = time.Second
	maxPublished    = 16 << 20 // bytes of all files of a version
)

// Errors of Published.
var (
	ErrNotPublished = errors.New("no rules are published yet")
	ErrStale        = errors.New("another version is current")
	ErrNoVersion    = errors.New("no such version is kept")
	ErrNoReason     = errors.New("want an author and a reason")
)

// Version is one published version of the rules.
type Version struct {
	Number  int64     `json:"version"` // 1, 2, 3, …
	Hash    string    `json:"hash"`    // of the rules' content
	Blob    string    `json:"blob"`    // digest of the files in the ledger
	Created time.Time `json:"created"`
	Author  string    `json:"author"`
	Reason  string    `json:"reason"`
	Of      int64     `json:"rollback_of,omitempty"` // the version whose content it brought back
}

// Published is the rules that people publish for a deployment: numbered versions in a ledger, of which the last is
// current. It is a Source. Safe for concurrent use. Made by NewPublished.
type Published struct {
	ledger *ledger.Ledger
	o      Options
	log    *slog.Logger
	now    func() time.Time
}

// NewPublished returns the rules in l. Of o it takes Rules and AllowEmpty, which say what may be published, Logger and
// Now.
func NewPublished(l *ledger.Ledger, o Options) *Published {
	p := &Published{ledger: l, o: o, log: o.Logger, now: o.Now}
	if p.log == nil {
		p.log = slog.Default()
	}
	if p.now == nil {
		p.now = time.Now
	}
	return p
}

// Run delivers the current version, and every one that becomes current, in their order; of several in quick succession
// perhaps the last alone. While there is none it delivers ErrNotPublished.
func (p *Published) Run(ctx context.Context, deliver func(Update)) error {
	states, wait := p.ledger.States(ctx, func(err error) {
		p.log.Warn("published rules cannot be read, the last ones stay", "error", err)
	})
	defer wait()
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	var st ledger.State
	delivered, unreadable := "nothing yet", ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case st = <-states:
		case <-again.C:
		}
		again.Reset(time.Hour)
		now := st.Fields[publishedField]
		if now == delivered || st.Fields == nil {
			continue
		}
		u, err := p.update(ctx, now)
		if err != nil {
			if ctx.Err() == nil && now != unreadable {
				unreadable = now
				p.log.Error("published rules cannot be read, the last ones stay", "error", err)
			}
			again.Reset(publishedRetry)
			continue
		}
		deliver(u)
		delivered = now
	}
}

// update returns what a version delivers, given what the ledger says of it. The error is one that may pass.
func (p *Published) update(ctx context.Context, text string) (Update, error) {
	u := Update{Origin: OriginPublished}
	if text == "" {
		u.Err = ErrNotPublished
		return u, nil
	}
	v, err := parseVersion(text)
	if err != nil {
		u.Err = err
		return u, nil
	}
	u.Version = strconv.FormatInt(v.Number, 10)
	u.Files, err = p.files(ctx, v)
	return u, err
}

func parseVersion(text string) (*Version, error) {
	v := new(Version)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return nil, fmt.Errorf("published rules: %w", err)
	}
	return v, nil
}

func (p *Published) files(ctx context.Context, v *Version) ([]rule.File, error) {
	text, err := p.ledger.Blob(ctx, v.Blob)
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", v.Number, err)
	}
	var files []rule.File
	if err := json.Unmarshal([]byte(text), &files); err != nil {
		return nil, fmt.Errorf("version %d: %w", v.Number, err)
	}
	return files, nil
}

// History returns the versions that are kept, the newest first.
func (p *Published) History(ctx context.Context) ([]*Version, error) {
	st, err := p.ledger.State(ctx)
	if err != nil {
		return nil, err
	}
	return history(st)
}

func history(st ledger.State) (out []*Version, err error) {
	for field, text := range st.Fields {
		if strings.HasPrefix(field, publishedPrefix) {
			v, err := parseVersion(text)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b *Version) int { return int(b.Number - a.Number) })
	return out, nil
}

// Files returns a version that is kept and its files; 0 is the current one. The error is ErrNotPublished, ErrNoVersion,
// or the ledger's.
func (p *Published) Files(ctx context.Context, number int64) (*Version, []rule.File, error) {
	st, err := p.ledger.State(ctx)
	if err != nil {
		return nil, nil, err
	}
	v, err := find(st, number)
	if err != nil {
		return nil, nil, err
	}
	files, err := p.files(ctx, v)
	return v, files, err
}

func find(st ledger.State, number int64) (*Version, error) {
	field, missing := publishedField, ErrNotPublished
	if number != 0 {
		field, missing = publishedPrefix+strconv.FormatInt(number, 10), fmt.Errorf("version %d: %w", number, ErrNoVersion)
	}
	if st.Fields[field] == "" {
		return nil, missing
	}
	return parseVersion(st.Fields[field])
}

// Check reads rules as Publish does, and publishes nothing. The error lists every mistake.
func (p *Published) Check(files []rule.File) (*rule.Snapshot, []rule.Warning, error) {
	bytes := 0
	for _, f := range files {
		bytes += len(f.Data)
	}
	if bytes > maxPublished {
		return nil, nil, fmt.Errorf("rules of %d bytes: want at most %d", bytes, maxPublished)
	}
	s, warnings, err := rule.Load(files, p.o.Rules)
	if err == nil && !p.o.AllowEmpty && s.Empty() {
		err = ErrEmpty
	}
	return s, warnings, err
}

// Publication says who publishes, why, and on which version.
type Publication struct {
	Expect      int64  // the current version as its maker knows it; 0: there is none yet
	Author, Who string // the author, and who that is for the audit log
	Reason      string
}

// Publish makes files the current version for all who follow the ledger. It is refused with the mistakes of the rules, with
// ErrStale if the current version is not the expected one, with ErrNoReason; or the ledger did not answer.
func (p *Published) Publish(ctx context.Context, files []rule.File, by Publication) (*Version, error) {
	s, _, err := p.Check(files)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(files)
	if err != nil {
		return nil, err
	}
	return p.commit(ctx, by, "rules.published", func(ledger.State) (*Version, string, error) {
		return &Version{Hash: s.Hash(), Blob: ledger.Digest(string(text))}, string(text), nil
	})
}

// Rollback makes the content of an earlier version current again, as a new version. Its errors are Publish's, and
// ErrNoVersion.
func (p *Published) Rollback(ctx context.Context, to int64, by Publication) (*Version, error) {
	old, files, err := p.Files(ctx, to)
	if err != nil {
		return nil, err
	}
	if _, _, err := p.Check(files); err != nil {
		return nil, err // this version of the service no longer takes it
	}
	return p.commit(ctx, by, "rules.rolled_back", func(st ledger.State) (*Version, string, error) {
		if _, err := find(st, to); err != nil {
			return nil, "", err
		}
		return &Version{Hash: old.Hash, Blob: old.Blob, Of: old.Number}, "", nil
	})
}

// commit makes what next returns the current version, with a value to keep if there is a new one.
func (p *Published) commit(ctx context.Context, by Publication, what string, next func(ledger.State) (*Version, string, error)) (*Version, error) {
	if strings.TrimSpace(by.Author) == "" || strings.TrimSpace(by.Reason) == "" {
		return nil, ErrNoReason
	}
	var v *Version
	_, err := p.ledger.Commit(ctx, func(st ledger.State) (*ledger.Change, error) {
		before := &Version{}
		if st.Fields[publishedField] != "" {
			var err error
			if before, err = parseVersion(st.Fields[publishedField]); err != nil {
				return nil, err
			}
		}
		if before.Number != by.Expect {
			return nil, fmt.Errorf("%w: %d, not %d", ErrStale, before.Number, by.Expect)
		}
		fresh, value, err := next(st)
		if err != nil {
			return nil, err
		}
		v = fresh
		v.Number, v.Author, v.Reason = before.Number+1, by.Author, by.Reason
		v.Created = p.now().UTC().Truncate(time.Second)
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		c := &ledger.Change{
			Who: by.Who, What: what, On: "version " + strconv.FormatInt(v.Number, 10), Why: by.Reason,
			Before: before.Hash, After: v.Hash,
			Set: map[string]string{publishedField: string(text), publishedPrefix + strconv.FormatInt(v.Number, 10): string(text)},
		}
		if value != "" {
			c.Blobs = map[string]string{v.Blob: value}
		}
		return c, forget(st, v, c)
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// forget has c take away the versions that are one too many beside v, and their content if no other has it.
func forget(st ledger.State, v *Version, c *ledger.Change) error {
	old, err := history(st)
	if err != nil {
		return err
	}
	kept := map[string]bool{v.Blob: true}
	for i, o := range old {
		if i < KeptVersions-1 {
			kept[o.Blob] = true
			continue
		}
		c.Set[publishedPrefix+strconv.FormatInt(o.Number, 10)] = ""
		if !kept[o.Blob] {
			kept[o.Blob] = true
			c.Drop = append(c.Drop, o.Blob)
		}
	}
	return nil
}
