package rule

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Snapshot is one compiled, immutable set of rules, made by Load. Safe for concurrent use.
type Snapshot struct {
	domains []*Domain
	byName  map[string]*Domain
	hash    string
	limits  int

	lookups   map[*Domain]Lookups
	rulesHash string                 // of the rule files alone
	values    map[string]*valuesFile // of the lookups, by name
}

// Domain returns the rules of a domain, nil if there is none. It does not allocate.
func (s *Snapshot) Domain(name string) *Domain { return s.byName[name] }

// Domains returns the domains in name order. The slice is the snapshot's own: don't write to it.
func (s *Snapshot) Domains() []*Domain { return s.domains }

// Hash identifies the content: SHA-256, in hex, over the files' names and bytes, whatever order they came in, values files included.
func (s *Snapshot) Hash() string { return s.hash }

// Empty reports whether the snapshot decides nothing: no domain has a rule or a blocklist.
func (s *Snapshot) Empty() bool {
	return !slices.ContainsFunc(s.domains, func(d *Domain) bool { return len(d.rules) > 0 || len(d.blocks) > 0 })
}

// LimitCount returns the number of limits. Limit.ID is 0 to LimitCount()-1.
func (s *Snapshot) LimitCount() int { return s.limits }

// Domain is the rules of one domain. Immutable.
type Domain struct {
	Name     string
	Profile  Profile
	Defaults Defaults

	root    treeNode
	rules   []*Rule
	blocks  []*Block
	blocked map[string]*blockedValues // by key
}

// Rules returns the domain's rules in the order of its files, a parent before its children. The slice is the domain's own: don't write to it.
func (d *Domain) Rules() []*Rule { return d.rules }

// Defaults are a domain's resolved defaults, which a limit carried by a request takes where no rule matches.
type Defaults struct {
	Algorithm bucket.Algorithm
	Policy    *bucket.Policy
}

// Rule is one configured node that a descriptor can reach. Immutable.
type Rule struct {
	// What every request reads of its rule comes first: see treeNode.

	Path        string // configured path below the domain, "tier_pro.api_key": each level's key or key_value
	Unlimited   bool
	Shadow      bool
	Quota       bool
	Detailed    bool  // detailed_metric
	runtimePath bool  // whether MetricPath depends on the request
	keyed       keyed // what KeyValues are
	replaces    bool  // whether Replaces has any
	partitioned bool  // whether there is a partition
	limits      uint8 // how many Limits there are
	first       Limit // of them

	full       string   // domain and Path
	Limits     []*Limit // none: Unlimited, or a node that lets everything pass
	Domain     *Domain
	QuotaGroup string         // "" is the group of all that name none
	Replaces   []string       // names of limits that these limits take the place of
	Name       string         // the name of rate_limit, also of an unlimited one; "" if it has none or there are several limits
	Metadata   map[string]any // JSON-like values; nil if none. Don't write to it
	File       string
	Line, Col  int

	identity  string // of the path
	source    *source
	partition *partition // nil: none
	one       [1]*Limit  // Limits, if there is one
}

// LimitCount returns the number of limits of the rule.
func (r *Rule) LimitCount() int { return int(r.limits) }

// Limit returns Limits[i], for i below LimitCount. The first lies beside the rule itself.
func (r *Rule) Limit(i int) *Limit {
	if i == 0 {
		return &r.first
	}
	return r.Limits[i]
}

// Replaced returns Replaces, and looks at nothing else of a rule that replaces nothing.
func (r *Rule) Replaced() []string {
	if !r.replaces {
		return nil
	}
	return r.Replaces
}

// Limit is one limit of a rule. Immutable.
type Limit struct {
	Bucket     *bucket.Limit
	Policy     *bucket.Policy
	Identity   string // what makes this limit's buckets its own: domain, configured path, name or else period, algorithm family
	Name       string // "" if it has none
	ID         int32  // dense within the snapshot
	Requests   uint32 // requests_per_unit as written
	Multiplier uint32 // at least 1
	Unit       bucket.Unit
	Rule       *Rule
}
