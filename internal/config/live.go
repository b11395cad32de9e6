package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// Options configures New. The zero value is usable.
type Options struct {
	Rules      rule.Options
	AllowEmpty bool                  // whether a version without any rule may become current
	StateDir   string                // keeps the last good rules for the next start; "": nowhere
	Changed    func(Change)          // told of every version that became current or was refused, one at a time; nil: nobody
	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: slog.Default()
	Now        func() time.Time      // nil: time.Now
}

// Change is what became of a version that is not the current one already.
type Change struct {
	Origin, Version string // as in Update
	Before, After   string // hashes of the rules' content; Before is "" at the first, After if there are none to hash
	Err             error  // why the version was refused, and Before stayed; nil if After is current
}

// Live is the current rules. Safe for concurrent use; made by New.
type Live struct {
	o       Options
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[rule.Snapshot]
	ready   chan struct{}
	state   *state // nil: none is kept

	applying sync.Mutex // one version at a time, so that an older one cannot overwrite a newer
	good     Update     // the last good one; guarded by applying

	mu     sync.Mutex // guards status
	status Status
}

// Status is what became of the versions so far.
type Status struct {
	Origin        string    `json:"origin"`                   // where the current version comes from; "" before the first
	OriginVersion string    `json:"origin_version,omitempty"` // what it is called there
	Version       int64     `json:"version"`                  // counts the versions that became current, from 1; with a state directory also those of earlier processes
	Hash          string    `json:"hash"`                     // of the current version's content
	Loaded        time.Time `json:"loaded"`                   // when a version last was good, be it the current one again
	Restored      bool      `json:"restored,omitempty"`       // whether the current version comes from the state directory and its origin has not said it yet
	LastOK        bool      `json:"last_load_ok"`             // whether the last version was good
	Error         string    `json:"error,omitempty"`          // what was wrong with the last version, if it was not: a problem a line
	Failures      int64     `json:"failures"`                 // versions that were refused
	Warnings      []string  `json:"warnings,omitempty"`       // of the current version: a finding a line
	Domains       int       `json:"domains"`                  // of the current version
	Limits        int       `json:"limits"`                   // of the current version
}

// ErrEmpty refuses a version without any rule, which is a mistake more often than a wish.
var ErrEmpty = errors.New("there is no rule in it; want --allow-empty-rules if that is meant")

// New makes a Live without rules. The error says what is wrong with the state directory or the registerer.
func New(o Options) (*Live, error) {
	l := &Live{o: o, log: o.Logger, now: o.Now, ready: make(chan struct{})}
	if l.log == nil {
		l.log = slog.Default()
	}
	if l.now == nil {
		l.now = time.Now
	}
	if o.StateDir != "" {
		var unusable, err error
		if l.state, unusable, err = openState(o.StateDir); err != nil {
			return nil, fmt.Errorf("--state-dir: %w", err)
		}
		if unusable != nil {
			l.log.Warn("the rules of an earlier start cannot be used", "error", unusable)
		}
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(collector{l}); err != nil {
			return nil, fmt.Errorf("register config metrics: %w", err)
		}
	}
	return l, nil
}

// Current returns the last good rules, nil before the first.
func (l *Live) Current() *rule.Snapshot { return l.current.Load() }

// Ready returns a channel that is closed once there are rules.
func (l *Live) Ready() <-chan struct{} { return l.ready }

// Status returns what became of the versions so far.
func (l *Live) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Run makes current what s delivers, until ctx ends or s does. What is refused is logged, problem by problem.
func (l *Live) Run(ctx context.Context, s Source) error {
	return s.Run(ctx, func(u Update) {
		if err := l.Apply(u); err != nil {
			l.complain(u, err)
		}
	})
}

// Apply makes a version current. If it could not be read, is wrong or empty, the last good one stays, Status and the
// gauges say so, and the error has every problem with its place: rule.Errors, ErrEmpty, or u's own.
func (l *Live) Apply(u Update) error {
	l.applying.Lock()
	defer l.applying.Unlock()
	err := l.apply(u, false)
	if u.Done != nil {
		u.Done(err)
	}
	return err
}

// Begin makes the first version current, or, if it is refused, the rules of the state directory; then what was wrong is
// logged. The error is Apply's, and there are no rules.
func (l *Live) Begin(u Update) error {
	err := l.Apply(u)
	if err == nil {
		return nil
	}
	if l.Restore() != nil {
		return err
	}
	l.complain(u, err)
	return nil
}

// Restore makes the rules of the state directory current, the last good ones of an earlier process, for want of better.
// It changes nothing else: Status says what was wrong with the last version before and after it.
func (l *Live) Restore() error {
	l.applying.Lock()
	defer l.applying.Unlock()
	if l.state == nil || l.state.saved == nil {
		return errNoState
	}
	return l.apply(l.state.saved.update(), true)
}

// apply is the one way in: compile whole, then swap, then tell.
func (l *Live) apply(u Update, restored bool) error {
	before := l.current.Load()
	var values valueFiles
	o := l.o.Rules
	if restored {
		o.ReadValues = l.state.saved.Values.read
	} else if o.ReadValues != nil {
		o.ReadValues = values.keep(o.ReadValues)
	}
	snapshot, warnings, err := l.compile(u, o)
	if err != nil {
		if !restored {
			l.refused(u, before, err)
			l.refreshed(u, before, o)
		}
		return err
	}
	if before != nil && before.Hash() == snapshot.Hash() {
		l.confirmed(u)
		return nil
	}
	number := l.state.next(l.Status().Version, snapshot.Hash())
	if !restored {
		// Kept before it is seen, so that no start ever goes back behind what was decided by.
		if err := l.state.save(u, values, number, snapshot.Hash()); err != nil {
			l.log.Error("rules cannot be kept for the next start", "error", err)
		}
	}
	l.current.Store(snapshot)
	l.good = u
	l.published(u, snapshot, number, warnings, restored)
	if before == nil {
		close(l.ready)
	}
	if restored {
		return nil
	}
	l.tell(Change{Origin: u.Origin, Version: u.Version, Before: hashOf(before), After: snapshot.Hash()})
	return nil
}

// compile does all that can fail, and changes nothing.
func (l *Live) compile(u Update, o rule.Options) (*rule.Snapshot, []rule.Warning, error) {
	if u.Err != nil {
		return nil, nil, u.Err
	}
	snapshot, warnings, err := rule.Load(u.Files, o)
	if err != nil {
		return nil, nil, err
	}
	if !l.o.AllowEmpty && snapshot.Empty() {
		return nil, nil, ErrEmpty
	}
	return snapshot, warnings, nil
}

func (l *Live) refused(u Update, before *rule.Snapshot, err error) {
	l.mu.Lock()
	l.status.LastOK = false
	l.status.Error = err.Error()
	l.status.Failures++
	l.mu.Unlock()
	l.tell(Change{Origin: u.Origin, Version: u.Version, Before: hashOf(before), Err: err})
}

// confirmed notes that the origin has the current rules, as it has again when a bad change was taken back.
func (l *Live) confirmed(u Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Origin, l.status.OriginVersion, l.status.Restored = u.Origin, u.Version, false
	l.status.LastOK, l.status.Error, l.status.Loaded = true, "", l.now()
}

func (l *Live) published(u Update, s *rule.Snapshot, number int64, warnings []rule.Warning, restored bool) {
	lines := make([]string, len(warnings))
	for i := range warnings {
		lines[i] = warnings[i].String()
		l.log.Warn("rules loaded with a finding", "finding", lines[i])
	}
	l.mu.Lock()
	st := &l.status
	st.Version, st.Origin, st.OriginVersion, st.Restored = number, u.Origin, u.Version, restored
	st.Hash, st.Warnings = s.Hash(), lines
	st.Domains, st.Limits = len(s.Domains()), s.LimitCount()
	if !restored {
		st.Loaded, st.LastOK, st.Error = l.now(), true, ""
	}
	now := *st
	l.mu.Unlock()
	l.log.Info("rules loaded", "origin", now.Origin, "origin_version", now.OriginVersion, "restored", restored,
		"version", now.Version, "hash", now.Hash, "domains", now.Domains, "limits", now.Limits, "findings", len(lines))
	if s.Empty() {
		l.log.Warn("the rules are empty: nothing is limited", "origin", now.Origin)
	}
}

func (l *Live) tell(c Change) {
	if l.o.Changed != nil {
		l.o.Changed(c)
	}
}

// complain logs why a version was refused.
func (l *Live) complain(u Update, err error) {
	list := rule.Mistakes(err)
	for _, p := range list {
		l.log.Error("rules refused", "problem", p)
	}
	st := l.Status()
	if st.Version == 0 {
		l.log.Error("load failed, there are no rules yet", "origin", u.Origin, "origin_version", u.Version, "problems", len(list))
		return
	}
	l.log.Error("reload failed, the last good rules stay", "origin", u.Origin, "origin_version", u.Version,
		"problems", len(list), "version", st.Version, "hash", st.Hash)
}

func hashOf(s *rule.Snapshot) string {
	if s == nil {
		return ""
	}
	return s.Hash()
}
