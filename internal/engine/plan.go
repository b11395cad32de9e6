package engine

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// keptDescriptors bounds the scratch that is kept for the next request, so that one huge request holds no memory after
// its answer.
const keptDescriptors = 256

// plan is the scratch of one decision: what its descriptors matched, the charges that follow, and their decisions. It is
// reused, and allocates nothing once it has grown.
type plan struct {
	view      *view
	domain    *rule.Domain   // nil: no such domain
	lookups   rule.Lookups   // the domain's
	metrics   *domainMetrics // never nil
	matches   []match        // one a descriptor
	charges   []store.Charge
	decisions []store.Decision // one a charge
	owners    []owner          // one a charge
	tooMany   bool             // more than store.MaxCharges: nothing is asked of the store
	blocked   *rule.Block      // what the blocklist refuses the request for: nothing is matched, nor asked of the store
	admitted  bool             // whether the store's decisions, or the lack of any, let the request pass

	quota  bool          // every limit is one of quota_mode
	queued bool          // some charge may be held in a queue
	held   time.Duration // how long the answer was held
	start  time.Time     // zero: not measured
	span   trace.Span    // nil: none

	entries  []rule.Entry // those of descriptors with derived ones
	values   []string
	groups   []group
	replaced map[string]struct{} // names of limits that some matched rule replaces
}

// match is what one descriptor came to.
type match struct {
	entries   []rule.Entry // the descriptor's, with those that lookups derive
	blocked   *rule.Block  // what the blocklist refuses it for, if anything
	rule      *rule.Rule   // nil: no rule
	path      string       // see Status.Path
	series    *series      // where its hits are counted, if that depends on path; found when they are
	override  *limit       // the request's own limit, if valid
	invalid   bool         // the request's own limit was not
	unlimited bool
	lenient   bool // a refund where none are taken: looked at, never refused
	hits      uint64
	first, n  int // its owners; charges too, unless tooMany
}

// unmatched reports whether neither a rule nor the request itself knows a limit for the descriptor.
func (m *match) unmatched() bool { return m.rule == nil && m.override == nil }

// owner says which limit a charge is made on, and for which descriptor.
type owner struct {
	limit  *rule.Limit
	counts *counts
	match  int
}

// group is a quota group of this request; its number is its place.
type group struct {
	name string
	room bool // some member is shadowed, and so never over
}

// begin returns an empty plan. The context carries the decision's span, if there is one.
func (e *Engine) begin(ctx context.Context) (context.Context, *plan) {
	p := e.plans.Get().(*plan)
	p.start = e.metrics.now()
	ctx, p.span = e.startSpan(ctx)
	return ctx, p
}

// plan matches req against v and lists its charges.
func (p *plan) plan(e *Engine, v *view, req *Request) {
	p.view = v
	p.metrics = e.metrics.unknown
	if d := v.domains[req.Domain]; d != nil {
		p.domain, p.lookups, p.metrics, p.quota = d.Domain, d.lookups, d.metrics, d.quota
	}
	if p.block(req) {
		return
	}
	for i := range req.Descriptors {
		p.match(e, req, &req.Descriptors[i])
	}
	if p.except() {
		return
	}
	for i := range p.matches {
		p.chargeAll(e, &req.Descriptors[i], i)
	}
	p.settleGroups()
}

// block reports whether the domain's blocklist lists an entry of req, and then notes which descriptors have one. It comes
// before everything else: a blocked request costs no look at rules or store.
func (p *plan) block(req *Request) bool {
	if p.domain == nil || len(p.domain.Blocks()) == 0 {
		return false
	}
	for i := range req.Descriptors {
		d := &req.Descriptors[i]
		m := match{entries: d.Entries, hits: asked(req, d)}
		for j := range d.Entries {
			if m.blocked = p.domain.Blocked(d.Entries[j]); m.blocked != nil {
				break
			}
		}
		if p.blocked == nil {
			p.blocked = m.blocked
		}
		p.matches = append(p.matches, m)
	}
	if p.blocked == nil {
		p.matches = p.matches[:0]
	}
	return p.blocked != nil
}

// match finds the rule and the limit of one descriptor, and collects the names it replaces.
func (p *plan) match(e *Engine, req *Request, d *Descriptor) {
	p.matches = append(p.matches, match{entries: d.Entries, hits: asked(req, d)})
	m := &p.matches[len(p.matches)-1]
	if p.domain == nil {
		return
	}
	m.entries, p.entries = p.lookups.Derive(p.entries, d.Entries)
	m.rule = p.domain.Match(m.entries)
	if d.HasOverride {
		envoy := p.domain.Profile == rule.Envoy
		base := m.rule
		if envoy {
			base = nil // the reference does not look at its rules for such a descriptor
		}
		m.override = p.view.override(p.domain, base, d.Override, e.overrideMax)
		m.invalid = m.override == nil
		if envoy && !m.invalid {
			m.rule = nil
		}
	}
	switch {
	case m.rule != nil:
		if m.rule.Varies() {
			m.path = m.rule.MetricPath(m.entries)
		}
		for _, name := range m.rule.Replaced() {
			if p.replaced == nil {
				p.replaced = make(map[string]struct{})
			}
			p.replaced[name] = struct{}{}
		}
	case m.override != nil:
		m.path = keyPath(p.domain.Name, m.entries)
	}
}

// chargeAll lists the charges of descriptor i: one a limit that nothing replaces.
func (p *plan) chargeAll(e *Engine, d *Descriptor, i int) {
	m := &p.matches[i]
	m.first = len(p.owners)
	switch {
	case m.override != nil:
		p.charge(e.keyer, d, i, &m.override.Limit, m.override.counts)
	case m.rule == nil:
	case m.rule.Unlimited:
		m.unlimited = !p.isReplaced(m.rule.Name)
	default:
		p.chargeLimits(e, d, i)
	}
	m.n = len(p.owners) - m.first
	if p.quota && m.n == 0 && !m.unlimited {
		p.groups[p.group("")].room = true // as the reference counts it
	}
}

func (p *plan) isReplaced(name string) bool {
	_, ok := p.replaced[name]
	return ok && name != ""
}

// charge lists one charge of descriptor i on l.
func (p *plan) charge(k *store.Keyer, d *Descriptor, i int, l *rule.Limit, counts *counts) {
	if p.isReplaced(l.Name) {
		return
	}
	m := &p.matches[i]
	p.owners = append(p.owners, owner{l, counts, i})
	if len(p.charges) == store.MaxCharges {
		p.tooMany = true
		return
	}
	c := store.Charge{
		Limit: l.Bucket, Policy: l.Policy, MaxDelay: l.Bucket.MaxDelay(),
		Key:  p.key(k, m, l),
		Hits: cost(m.hits),
		Vote: p.vote(m.rule),
	}
	report := d.HasHits && d.Hits > 0 && !d.Refund
	switch {
	case d.Refund && l.Policy.Refunds:
		c.Hits = -c.Hits
	case d.Refund:
		m.lenient = true
		c.Hits, c.Vote = 0, store.VoteNone
	case report && l.Bucket.Terms().D > 0:
		c.Book = store.BookAlways
	case c.Hits > 0 && p.domain.Profile == rule.Envoy && c.Vote != store.VoteNone:
		c.Book = store.BookWhenRefuses
	}
	p.charges = append(p.charges, c)
	p.queued = p.queued || p.queues(len(p.charges)-1)
}

// key returns the key of the bucket of l for the descriptor of m.
func (p *plan) key(k *store.Keyer, m *match, l *rule.Limit) store.Key {
	values := p.keyValues(m.rule, m.entries)
	if m.rule != nil {
		if partition, value, ok := m.rule.Partition(m.entries); ok {
			return k.Partitioned(l.Identity, values, partition, value)
		}
	}
	return k.Key(l.Identity, values)
}

// keyValues returns the values that tell buckets of one limit apart: those of its rule, or of a request's own limit
// without one the entries as they came. They hold until the next call.
func (p *plan) keyValues(r *rule.Rule, entries []rule.Entry) []string {
	p.values = p.values[:0]
	if r != nil {
		p.values = r.KeyValues(p.values, entries)
		return p.values
	}
	for _, e := range entries {
		p.values = append(p.values, e.Key, e.Value)
	}
	return p.values
}

// vote returns what a refusal under r does. Groups are numbered as they come up; settleGroups has the last word.
func (p *plan) vote(r *rule.Rule) store.Vote {
	shadow := r != nil && r.Shadow
	switch {
	case p.inQuota(r):
		name := ""
		if r != nil {
			name = r.QuotaGroup
		}
		g := p.group(name)
		if !shadow {
			return store.VoteQuota + store.Vote(g)
		}
		p.groups[g].room = true
		return store.VoteNone
	case shadow:
		return store.VoteNone
	default:
		return store.VoteEnforce
	}
}

// inQuota reports whether limits of r, or of a request if r is nil, are of quota_mode.
func (p *plan) inQuota(r *rule.Rule) bool { return p.quota || r != nil && r.Quota }

// group returns the number of a quota group of this request.
func (p *plan) group(name string) int {
	for g := range p.groups {
		if p.groups[g].name == name {
			return g
		}
	}
	p.groups = append(p.groups, group{name: name})
	return len(p.groups) - 1
}

// settleGroups takes the vote from quota groups that cannot refuse: a member that is shadowed is never over.
func (p *plan) settleGroups() {
	for i := range p.charges {
		if v := p.charges[i].Vote; v >= store.VoteQuota && p.groups[v-store.VoteQuota].room {
			p.charges[i].Vote = store.VoteNone
		}
	}
}

// keyPath is the path of a descriptor that no rule matched: the domain and its keys, without the values.
func keyPath(domain string, entries []rule.Entry) string {
	var b strings.Builder
	b.WriteString(domain)
	for _, e := range entries {
		b.WriteByte('.')
		b.WriteString(e.Key)
	}
	return b.String()
}

// release gives the scratch back for the next request, holding on to nothing of this one.
func (p *plan) release(e *Engine) {
	if len(p.matches) > keptDescriptors || cap(p.values) > keptDescriptors || cap(p.entries) > keptDescriptors {
		return
	}
	clear(p.matches)
	clear(p.charges)
	clear(p.decisions)
	clear(p.owners)
	clear(p.groups)
	clear(p.values[:cap(p.values)])
	clear(p.entries[:cap(p.entries)])
	clear(p.replaced)
	*p = plan{
		matches: p.matches[:0], charges: p.charges[:0], decisions: p.decisions[:0], owners: p.owners[:0],
		groups: p.groups[:0], values: p.values[:0], entries: p.entries[:0], replaced: p.replaced,
	}
	e.plans.Put(p)
}
