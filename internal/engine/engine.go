package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Snapshots gives the current rules. Current returns nil before the first were loaded.
type Snapshots interface{ Current() *rule.Snapshot }

// Options configures New.
type Options struct {
	Snapshots   Snapshots
	Store       store.Store
	Keyer       *store.Keyer
	Shadow      bool                  // decide and count, but refuse nothing
	OverrideMax uint32                // largest requests_per_unit a request's own limit may ask for; 0 means bucket.MaxHits
	Waiters     int                   // most answers held in queues at once (max_delay); 0 means 1024
	Now         func() time.Time      // for deadlines of queues; nil means time.Now
	Registerer  prometheus.Registerer // nil: no metrics
	Logger      *slog.Logger          // nil: slog.Default()
	Tracer      trace.Tracer          // nil: no spans
}

// Engine decides. Safe for concurrent use.
type Engine struct{}

// New returns an engine.
func New(o Options) (*Engine, error) { return &Engine{}, nil }

// Decide answers req into v, overwriting it whole. It always decides.
// The error is ErrNoRules before the first snapshot, ErrEmptyDomain or ErrNoDescriptors; then v is meaningless.
func (e *Engine) Decide(ctx context.Context, req *Request, v *Verdict) error { return nil }

// Request is what a caller asks.
type Request struct {
	Domain      string
	Descriptors []Descriptor
	Hits        uint32 // hits_addend of the request; 0 means 1
}

// Descriptor is one descriptor of a request.
type Descriptor struct {
	Entries     []rule.Entry
	Hits        uint64 // its own hits_addend, if HasHits: 0 is a peek
	HasHits     bool
	Refund      bool // is_negative_hits: Hits are given back
	HasOverride bool
	Override    Override
}

// Override is a limit carried by a request (RateLimitOverride), as it came: not yet valid.
type Override struct {
	Requests      uint32
	Unit          int32  // number of envoy.type.v3.RateLimitUnit, any value
	Multiplier    uint32 // unit_multiplier, if HasMultiplier
	HasMultiplier bool
}

// Verdict is the answer to a Request. A caller may reuse one.
type Verdict struct {
	Over      bool     // the overall code
	WouldDeny bool     // over but for --shadow
	Envoy     bool     // the domain's profile is envoy
	Statuses  []Status // one a descriptor, in order
	Nearest   int      // index of the status nearest to or over its edge, which headers speak of; -1 if no limit applies
}

// Status is the answer for one descriptor.
type Status struct {
	Over       bool
	Rule       *rule.Rule    // nil: unmatched
	Path       string        // the rule's metric path, or the entries' keys for an override without a rule
	HasLimit   bool          // whether a limit applies, and the next fields tell its numbers
	Name       string        // the limit's name, "" if it has none
	Requests   uint32        // requests_per_unit
	Unit       bucket.Unit   //
	Multiplier uint32        // at least 1
	Quota      int64         // what the limit grants at one instant: burst for the credit family, else requests
	Window     time.Duration // over which Quota comes back: burst ÷ rate for the credit family, else the period
	Unlimited  bool          // answered without a limit; Remaining is bucket.MaxHits
	Shadow     bool          // of a shadow rule: never Over, never Nearest
	InQuota    bool          // of a quota_mode rule
	Unpaid     bool          // no store could be asked; decided by the failure mode
	Remaining  uint32
	Reset      time.Duration // the wait when Over, else until full or the window's end
	RetryAfter time.Duration // when Over: the wait; bucket.Never: no wait helps
	Hits       uint64        // hits this descriptor asked for
	Origin     store.Origin
}
