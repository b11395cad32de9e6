package config

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// Options configures NewFiles. The zero value is usable.
type Options struct {
	Rules      rule.Options
	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: slog.Default()
	Now        func() time.Time      // nil: time.Now
}

// Files is a set of rules on disk. Safe for concurrent use; made by NewFiles.
type Files struct {
	path    string
	rules   rule.Options
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[rule.Snapshot]

	loading sync.Mutex // one load at a time, so that an older one cannot overwrite a newer
	digest  [sha256.Size]byte

	mu     sync.Mutex // guards status
	status Status
}

// Status is what became of the loads so far.
type Status struct {
	Path     string    `json:"path"`
	Version  int64     `json:"version"`            // counts the versions that became current, from 1
	Hash     string    `json:"hash"`               // of the current version's content
	Loaded   time.Time `json:"loaded"`             // when a load last succeeded, be it with unchanged bytes
	LastOK   bool      `json:"last_load_ok"`       // whether the last load succeeded
	Error    string    `json:"error,omitempty"`    // what the last load said, if it did not: a problem a line
	Failures int64     `json:"failures"`           // loads that failed
	Warnings []string  `json:"warnings,omitempty"` // of the current version: a finding a line
}

// NewFiles loads the rules at path, a file or a directory as Read takes it. The error is the first load's.
func NewFiles(path string, o Options) (*Files, error) {
	f := &Files{path: path, rules: o.Rules, log: o.Logger, now: o.Now, status: Status{Path: path}}
	if f.log == nil {
		f.log = slog.Default()
	}
	if f.now == nil {
		f.now = time.Now
	}
	if err := f.load(); err != nil {
		return nil, fmt.Errorf("load rules %q: %w", path, err)
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(collector{f}); err != nil {
			return nil, fmt.Errorf("register config metrics: %w", err)
		}
	}
	return f, nil
}

// Current returns the last good rules, never nil.
func (f *Files) Current() *rule.Snapshot { return f.current.Load() }

// Status returns what became of the loads so far.
func (f *Files) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Reload reads the rules again. If they are unreadable, bad or gone, the last good ones stay, Status and the gauges say
// so, and the error has every problem with its place: rule.Errors, or what could not be read.
func (f *Files) Reload() error {
	if err := f.load(); err != nil {
		return fmt.Errorf("reload rules %q: %w", f.path, err)
	}
	return nil
}

// load reads, compiles and publishes, and notes what became of it.
func (f *Files) load() error {
	f.loading.Lock()
	defer f.loading.Unlock()

	files, err := Read(f.path)
	if err != nil {
		return f.failed(err)
	}
	sum := digest(files)
	if f.current.Load() != nil && sum == f.digest {
		f.unchanged()
		return nil
	}
	snapshot, warnings, err := rule.Load(files, f.rules)
	if err != nil {
		return f.failed(err)
	}
	f.digest = sum
	f.current.Store(snapshot)
	f.published(snapshot, warnings)
	return nil
}

func (f *Files) failed(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.LastOK = false
	f.status.Error = err.Error()
	f.status.Failures++
	return err
}

// unchanged notes that the files hold the current rules, as they do again when a bad change has been taken back.
func (f *Files) unchanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.LastOK, f.status.Error, f.status.Loaded = true, "", f.now()
}

func (f *Files) published(s *rule.Snapshot, warnings []rule.Warning) {
	lines := make([]string, len(warnings))
	for i := range warnings {
		lines[i] = warnings[i].String()
		f.log.Warn("rules loaded with a finding", "finding", lines[i])
	}
	f.mu.Lock()
	f.status.Version++
	f.status.Hash = s.Hash()
	f.status.Loaded = f.now()
	f.status.LastOK, f.status.Error = true, ""
	f.status.Warnings = lines
	st := f.status
	f.mu.Unlock()
	f.log.Info("rules loaded", "path", f.path, "version", st.Version, "hash", st.Hash,
		"domains", len(s.Domains()), "limits", s.LimitCount(), "findings", len(lines))
}
