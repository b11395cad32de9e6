package config

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// How files are looked at. A change that the system tells of is current within longestQuiet and a little; one that it
// does not tell of (a network file system, a link far above the rules) at the next poll.
const (
	DefaultPoll  = 10 * time.Second
	quiet        = 100 * time.Millisecond // without an event, before files are read: who writes is likely done
	longestQuiet = time.Second            // after the first event, be there more or not
	confirmation = 50 * time.Millisecond  // between the two readings that must agree
)

// FilesOptions configures NewFiles and NewReferenceFiles. The zero value is usable.
type FilesOptions struct {
	Poll   time.Duration // how often files are read without being told of a change; 0: DefaultPoll
	Logger *slog.Logger  // nil: slog.Default()
}

// Files is the Source of rules on disk. It reads them when they change, waits until they hold still, and delivers every
// content once. Made by NewFiles or NewReferenceFiles.
type Files struct {
	origin string
	read   func() ([]rule.File, error)
	places func() places
	poll   time.Duration
	log    *slog.Logger
	nudged chan struct{}

	mu   sync.Mutex // guards seen
	seen view       // what was delivered last
}

// view is what the files held at one moment.
type view struct {
	files  []rule.File
	err    error
	sum    [sha256.Size]byte            // of both
	values map[string][sha256.Size]byte // of the files of values that the rules name
}

func (v view) equal(w view) bool { return v.sum == w.sum && maps.Equal(v.values, w.values) }

// NewFiles returns the rules at path, a file or a directory as Read takes it. It reads nothing yet.
func NewFiles(path string, o FilesOptions) *Files {
	return newFiles("files "+path, o, func() ([]rule.File, error) { return Read(path) },
		func() places { return placesOf(path) })
}

func newFiles(origin string, o FilesOptions, read func() ([]rule.File, error), places func() places) *Files {
	f := &Files{origin: origin, read: read, places: places, poll: o.Poll, log: o.Logger, nudged: make(chan struct{}, 1)}
	if f.poll == 0 {
		f.poll = DefaultPoll
	}
	if f.log == nil {
		f.log = slog.Default()
	}
	return f
}

// Update reads the files as they are, for a start that wants to know at once whether they are good. Call it before Run.
func (f *Files) Update() Update {
	v := f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.updateLocked(v)
}

// Nudge makes Run read the files, and deliver them even if nothing has changed. It does not block.
func (f *Files) Nudge() {
	select {
	case f.nudged <- struct{}{}:
	default: // one is on its way
	}
}

// ReadValues reads a file of values that the rules name, for rule.Options. Run looks at it as at the rules from then on.
func (f *Files) ReadValues(name string) ([]byte, error) {
	data, err := ReadFile(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen.values == nil {
		f.seen.values = map[string][sha256.Size]byte{}
	}
	f.seen.values[name] = sumOf(data, err)
	return data, err
}

// Run delivers the files whenever they have changed, until ctx ends; it returns nil.
func (f *Files) Run(ctx context.Context, deliver func(Update)) error {
	for _, name := range stuck(f.places(), mountPoints()) {
		f.log.Warn("a file of rules is a mount of its own (a subPath in Kubernetes?): changes are not seen before the next start",
			"file", name)
	}
	w := newWatcher(f.log)
	defer w.close()
	poll := time.NewTicker(f.poll)
	defer poll.Stop()
	settled := time.NewTimer(0) // what changed before this line has no event
	defer settled.Stop()
	var since time.Time // of the first event that no reading has followed; zero: none
	for {
		force := false
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.events:
			if !w.concerns(e) {
				continue
			}
			if since.IsZero() {
				since = time.Now()
			}
			settled.Reset(min(quiet, max(0, longestQuiet-time.Since(since))))
			continue
		case err := <-w.errors: // an overflow: events are lost
			f.log.Warn("files are looked at, since events are lost", "error", err)
		case <-settled.C:
		case <-poll.C:
		case <-f.nudged:
			force = true
		}
		since = time.Time{}
		w.update(f.places()) // first watch, then read: what changes between the two has an event
		if !f.deliver(ctx, force, deliver) {
			settled.Reset(quiet)
		}
	}
}

// deliver delivers the files if they have changed. It reports false if they are being written at this moment.
func (f *Files) deliver(ctx context.Context, force bool, deliver func(Update)) bool {
	v := f.look()
	f.mu.Lock()
	changed := !v.equal(f.seen)
	f.mu.Unlock()
	if !changed && !force {
		return true
	}
	// Half a file is often a valid one with fewer limits, and a set may be read while it is replaced.
	select {
	case <-ctx.Done():
		return true
	case <-time.After(confirmation):
	}
	if !v.equal(f.look()) {
		return false
	}
	f.mu.Lock()
	u := f.updateLocked(v)
	f.mu.Unlock()
	deliver(u) // unlocked, since it calls ReadValues
	return true
}

// look reads everything: the rules, and the files of values that the last rules named.
func (f *Files) look() view {
	var v view
	v.files, v.err = f.read()
	v.sum = digest(v.files, v.err)
	f.mu.Lock()
	names := maps.Clone(f.seen.values)
	f.mu.Unlock()
	for name := range names {
		names[name] = sumOf(ReadFile(name))
	}
	v.values = names
	return v
}

// updateLocked takes v as seen, and returns it for delivery; the rules will name their files of values again.
func (f *Files) updateLocked(v view) Update {
	f.seen = view{sum: v.sum}
	return Update{Origin: f.origin, Files: v.files, Err: v.err}
}
