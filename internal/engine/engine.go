package engine

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/override"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// The only errors of Decide and Explain: what cannot be decided at all. Everything else, however odd, is decided.
var (
	ErrNoRules       = errors.New("no rules loaded")
	ErrEmptyDomain   = errors.New("domain is empty")
	ErrNoDescriptors = errors.New("descriptor list is empty")
)

// Snapshots gives the current rules. Current returns nil before the first were loaded; it is called once a request, so
// it must not block, and must be safe for concurrent use.
type Snapshots interface{ Current() *rule.Snapshot }

// Options configures New. Snapshots, Store and Keyer must be given.
type Options struct {
	Snapshots   Snapshots
	Store       store.Store
	Keyer       *store.Keyer
	Shadow      bool                  // decide and count, but refuse nothing
	Quota       bool                  // in domains of profile envoy every limit is one of quota_mode, and a descriptor without one is a quota with room
	OverrideMax uint32                // largest requests_per_unit a request's own limit may ask for; 0 means bucket.MaxHits
	Waiters     int                   // most answers held in queues at once (max_delay); 0 means 1024
	Now         func() time.Time      // for deadlines of queues; nil means time.Now
	Registerer  prometheus.Registerer // nil: no metrics
	Logger      *slog.Logger          // nil: slog.Default()
	Tracer      trace.Tracer          // nil: no spans

	// Hold blocks for d, or until ctx ends and then returns its error. It stands in for the timer of answers held in
	// queues where time is virtual; Drain does not wake it. nil means a timer.
	Hold func(ctx context.Context, d time.Duration) error
}

// Engine decides. Made by New only. Safe for concurrent use.
type Engine struct {
	snapshots   Snapshots
	store       store.Store
	keyer       *store.Keyer
	shadow      bool
	quota       bool
	overrideMax uint32
	tracer      trace.Tracer
	log         sampledLog
	queue       *queue
	metrics     *metrics
	plans       sync.Pool // of *plan

	viewed      sync.Mutex // held while a view is made
	exceptional []*override.Override
	view        atomic.Pointer[view]
}

// New returns an engine. The error says which option is missing, or what the registerer did not accept.
func New(o Options) (*Engine, error) {
	switch {
	case o.Snapshots == nil:
		return nil, errors.New("engine without snapshots")
	case o.Store == nil:
		return nil, errors.New("engine without a store")
	case o.Keyer == nil:
		return nil, errors.New("engine without a keyer")
	}
	if o.OverrideMax == 0 {
		o.OverrideMax = bucket.MaxHits
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	e := &Engine{
		snapshots:   o.Snapshots,
		store:       o.Store,
		keyer:       o.Keyer,
		shadow:      o.Shadow,
		quota:       o.Quota,
		overrideMax: o.OverrideMax,
		tracer:      o.Tracer,
		log:         sampledLog{logger: o.Logger},
		queue:       newQueue(o),
	}
	e.plans.New = func() any { return new(plan) }
	var err error
	e.metrics, err = newMetrics(e, o.Registerer)
	return e, err
}

// Decide answers req into v, overwriting it whole. It always decides: a store that cannot be asked is a decision by each
// limit's failure mode. The error is ErrEmptyDomain, ErrNoDescriptors, or ErrNoRules before the first snapshot; then v is
// meaningless. It blocks as long as the store does (see store.Store), plus the delay of a queue (max_delay), which ends
// early when ctx does.
func (e *Engine) Decide(ctx context.Context, req *Request, v *Verdict) error {
	rules, err := e.current(req)
	if err != nil {
		return err
	}
	ctx, p := e.begin(ctx)
	p.plan(e, rules, req)
	e.take(ctx, p)
	e.verdict(p, v)
	e.done(ctx, p, req, v)
	return nil
}

// Drain answers everyone who waits in a queue at once, and lets nobody wait from now on: what would have to is refused.
// It does not block, and may be called more than once.
func (e *Engine) Drain() { e.queue.drain() }

// current returns the view to decide req under, or why none can.
func (e *Engine) current(req *Request) (*view, error) {
	switch {
	case req.Domain == "":
		return nil, ErrEmptyDomain
	case len(req.Descriptors) == 0:
		return nil, ErrNoDescriptors
	}
	v := e.latest()
	if v == nil {
		return nil, ErrNoRules
	}
	return v, nil
}

// latest returns the view of the current snapshot, made by the first who needs it; nil before there is one.
func (e *Engine) latest() *view {
	s := e.snapshots.Current()
	if s == nil {
		return nil
	}
	if v := e.view.Load(); v != nil && v.snapshot == s {
		return v
	}
	e.viewed.Lock()
	defer e.viewed.Unlock()
	// Read again: a caller who stood at the lock with an older snapshot must not bring it back.
	s = e.snapshots.Current()
	old := e.view.Load()
	if old != nil && old.snapshot == s {
		return old
	}
	v := e.newView(s, old)
	e.view.Store(v)
	return v
}

// clampHits brings a store's count of hits into the width of Envoy's limit_remaining.
func clampHits(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }
