package engine

import (
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/override"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// exceptions are what operators decided on top of the rules of a view. A nil one is none, and costs a request a look at
// a pointer.
type exceptions struct {
	rules    map[*rule.Rule][]exception   // of each rule that some name a limit of: all that its descriptors may meet
	anywhere map[*rule.Domain][]exception // of every other rule, and of descriptors that match none
}

// exception is one override as it applies to a rule; lists of them are in the order in which they decide.
type exception struct {
	*override.Override
	id    int         // of the one limit it names; anyLimit: it names none
	limit *limit      // what takes that limit's place, if that is what it does
	block *rule.Block // what a request is told that it blocks
}

const anyLimit = -1

// SetOverrides makes these what operators decided, and nothing else: they hold for every request that comes after, and
// for those rules, now and later, that have what they name. It keeps the slice.
func (e *Engine) SetOverrides(all []*override.Override) {
	e.viewed.Lock()
	defer e.viewed.Unlock()
	e.exceptional = all
	if old := e.view.Load(); old != nil {
		e.view.Store(e.newView(old.snapshot, old))
	}
}

// newExceptions finds out what the overrides mean for the rules of v. One that names a limit that is not there means
// nothing, but may after the next reload.
func (e *Engine) newExceptions(v *view, all []*override.Override) *exceptions {
	if len(all) == 0 {
		return nil
	}
	x := &exceptions{rules: map[*rule.Rule][]exception{}, anywhere: map[*rule.Domain][]exception{}}
	named := map[string][]*rule.Limit{}
	for _, d := range v.snapshot.Domains() {
		for _, r := range d.Rules() {
			for _, l := range r.Limits {
				named[l.Policy.Rule] = append(named[l.Policy.Rule], l)
			}
		}
	}
	for _, o := range all {
		c := exception{Override: o, id: anyLimit}
		if o.Action == override.Block {
			c.block = &rule.Block{Key: o.Key, Match: found(o), Reason: o.Reason, File: "override " + o.ID}
		}
		met := false
		for _, d := range v.snapshot.Domains() {
			if o.Rule == "" && (o.Domain == "" || o.Domain == d.Name) {
				x.anywhere[d] = append(x.anywhere[d], c)
				met = true
			}
		}
		for _, l := range named[o.Rule] {
			if o.Rule == "" || o.Domain != "" && o.Domain != l.Rule.Domain.Name {
				continue
			}
			met = true
			if err := c.become(v, l); err != nil {
				e.log.logger.Error("override ignored, its numbers do not fit the limit", "id", o.ID, "limit", o.Rule, "error", err)
				continue
			}
			x.rules[l.Rule] = append(x.rules[l.Rule], c)
		}
		if !met {
			e.log.logger.Warn("override without effect: the rules have no such limit or domain", "id", o.ID)
		}
	}
	order := func(a, b exception) int {
		if a.Before(b.Override) {
			return -1
		}
		return 1
	}
	for _, list := range x.anywhere {
		slices.SortFunc(list, order)
	}
	for r, list := range x.rules {
		list = append(list, x.anywhere[r.Domain]...)
		slices.SortFunc(list, order)
		x.rules[r] = list
	}
	return x
}

// found is the rule.Block.Match of a block by o: how a request was found, not by which value.
func found(o *override.Override) string {
	switch {
	case o.Network != "":
		return "cidr(" + o.Network + ")"
	case o.Key != "":
		return "value"
	default:
		return o.Rule
	}
}

// become makes c the exception from limit l.
func (c *exception) become(v *view, l *rule.Limit) error {
	c.id = int(l.ID)
	if c.Action != override.Limit {
		return nil
	}
	b, err := c.Over(l.Bucket.Config())
	if err != nil {
		return err
	}
	// Its buckets and counters are those of the rule: what was spent stays spent.
	x := limit{Limit: *l, counts: v.counts[l.ID]}
	k := b.Config()
	x.Bucket, x.Requests, x.Unit, x.Multiplier = b, c.Requests, k.Unit, uint32(k.Multiplier)
	c.limit = &x
	return nil
}

// of returns what operators decided for a descriptor on a limit, nil if nothing; id is anyLimit for one without limits.
func (x *exceptions) of(d *rule.Domain, r *rule.Rule, id int, entries []rule.Entry) *exception {
	list, ok := x.rules[r]
	if !ok {
		list = x.anywhere[d]
	}
	for i := range list {
		if c := &list[i]; (c.id == anyLimit || c.id == id) && c.Meets(entries) {
			return c
		}
	}
	return nil
}

// each calls yield with what operators decided for the descriptor of m, limit by limit.
func (x *exceptions) each(d *rule.Domain, m *match, yield func(*exception)) {
	if m.rule == nil || len(m.rule.Limits) == 0 {
		if c := x.of(d, m.rule, anyLimit, m.entries); c != nil {
			yield(c)
		}
		return
	}
	for _, l := range m.rule.Limits {
		if c := x.of(d, m.rule, int(l.ID), m.entries); c != nil {
			yield(c)
		}
	}
}

// except reports whether an operator blocked a descriptor of p, and then notes which ones. Rules were matched before,
// since an exception may depend on them; nothing else has been done.
func (p *plan) except() bool {
	x := p.view.exceptions
	if x == nil || p.domain == nil {
		return false
	}
	for i := range p.matches {
		m := &p.matches[i]
		x.each(p.domain, m, func(c *exception) {
			switch {
			case c.block != nil && m.blocked == nil:
				m.blocked = c.block
			case c.Action == override.Exempt && m.override != nil:
				m.override, m.unlimited = nil, true
			}
		})
		if p.blocked == nil {
			p.blocked = m.blocked
		}
	}
	if p.blocked == nil {
		return false
	}
	for i := range p.matches {
		m := &p.matches[i]
		*m = match{entries: m.entries, blocked: m.blocked, hits: m.hits}
	}
	return true
}

// chargeLimits lists the charges of descriptor i: one a limit, as operators left it.
func (p *plan) chargeLimits(e *Engine, d *Descriptor, i int) {
	m := &p.matches[i]
	exempt := false
	for k := range m.rule.LimitCount() {
		l := m.rule.Limit(k)
		counts := p.view.counts[l.ID]
		if p.view.exceptions != nil {
			if c := p.view.exceptions.of(p.domain, m.rule, int(l.ID), m.entries); c != nil {
				if c.Action == override.Exempt {
					exempt = true
					continue
				}
				l = &c.limit.Limit
			}
		}
		p.charge(e.keyer, d, i, l, counts)
	}
	m.unlimited = m.unlimited || exempt && len(p.owners) == m.first
}

// explainExceptions says what operators decided for m.
func (p *plan) explainExceptions(m *match) (out []string) {
	if p.view.exceptions == nil {
		return nil
	}
	p.view.exceptions.each(p.domain, m, func(c *exception) {
		out = append(out, fmt.Sprintf("%s: %s, by %s until %s (%s)",
			c.ID, c.String(), c.Author, c.Expires.Format("2006-01-02 15:04:05 MST"), c.Reason))
	})
	return out
}
