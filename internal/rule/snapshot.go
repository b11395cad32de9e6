package rule

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Entry is one key and value of a descriptor, as bytes of text: not necessarily UTF-8.
type Entry struct{ Key, Value string }

// Profile says whose answers a file wants. The zero value is Native.
type Profile uint8

const (
	Native Profile = iota
	Envoy
)

// Snapshot is one compiled, immutable set of rules. Safe for concurrent use. Made by Load / Compile only.
type Snapshot struct { /* … */
}

// Domain returns the rules of a domain, nil if there is none. No allocation.
func (s *Snapshot) Domain(name string) *Domain { panic("sketch") }

// Domains lists them in name order; Rules lists every rule of all domains (for /rlconfig, check, metrics) in file order.
func (s *Snapshot) Domains() []*Domain { panic("sketch") }

// Hash identifies the content (hex sha-256 over the files' names and bytes).
func (s *Snapshot) Hash() string { panic("sketch") }

// LimitCount returns the number of limits: Limit.ID is 0…LimitCount()-1.
func (s *Snapshot) LimitCount() int { panic("sketch") }

// Domain is one domain's rules.
type Domain struct {
	Name     string
	Profile  Profile
	Defaults Defaults // resolved: what an override in a request without a rule uses
}

// Defaults are a domain's resolved defaults.
type Defaults struct {
	Algorithm bucket.Algorithm
	Policy    *bucket.Policy
}

// Match returns the rule whose path the entries reach exactly, nil if none. No allocation; cost independent of the number of
// sibling values. (Precedence and depth: design §6, compat A.4.)
func (d *Domain) Match(entries []Entry) *Rule { panic("sketch") }

// Rules lists the domain's rules in file order.
func (d *Domain) Rules() []*Rule { panic("sketch") }

// Rule is one configured node that a descriptor can reach. Immutable.
type Rule struct {
	Path       string // configured path below the domain: "tier_pro.api_key" (key or key_value, joined with '.', as /rlconfig prints it)
	File       string
	Line, Col  int
	Domain     *Domain
	Limits     []*Limit // none: a node without a limit, which answers OK with no current_limit
	Unlimited  bool
	Shadow     bool
	Quota      bool
	QuotaGroup string
	Replaces   []string       // names
	Name       string         // rate_limit.name of a rule with one limit or unlimited, for `replaces`
	Metadata   map[string]any // the reference's `metadata`, as JSON-like values; nil if none
	Detailed   bool           // detailed_metric
}

// Limit is one limit of a rule.
type Limit struct {
	ID         int // dense within the snapshot
	Rule       *Rule
	Name       string // "" if unnamed
	Requests   uint32 // requests_per_unit as written
	Unit       bucket.Unit
	Multiplier uint32 // 1 unless unit_multiplier
	Bucket     *bucket.Limit
	Policy     *bucket.Policy
	Identity   string // what makes this limit's buckets its own: domain + configured path + (name, else unit × multiplier) + family; length-prefixed
}

// KeyValues appends to dst the values that tell buckets of this rule apart, in order: each entry's value as the rule keeps it (normalised IP, or the
// pattern where share_threshold). No allocation unless it normalises. dst entries alias the request or the rule.
func (r *Rule) KeyValues(dst []string, entries []Entry) []string { panic("sketch") }

// MetricPath returns the label/stat path of a request under this rule, as compat A.4 "Stat key rules" say (detailed_metric, value_to_metric,
// share_threshold); equal to Domain.Name+"."+Path, without allocation, unless a flag asks for runtime values.
func (r *Rule) MetricPath(entries []Entry) string { panic("sketch") }
