package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Explain says how Decide would answer req, and why, without charging, counting or writing anything. Its errors are
// Decide's. It asks the store twice, and allocates.
func (e *Engine) Explain(ctx context.Context, req *Request) (*Explanation, error) {
	v, err := e.current(req)
	if err != nil {
		return nil, err
	}
	p := new(plan)
	p.plan(e, v, req)
	x := &Explanation{
		Domain: req.Domain, Known: p.domain != nil, Snapshot: v.snapshot.Hash(), TooMany: p.tooMany,
		Descriptors: make([]ExplainedDescriptor, len(req.Descriptors)),
	}
	if p.domain != nil {
		x.Profile = p.domain.Profile.String()
	}
	for i := range req.Descriptors {
		x.Descriptors[i] = p.explain(&req.Descriptors[i], i)
	}
	if p.tooMany || p.blocked != nil {
		x.Asked = e.outcome(p)
		return x, nil
	}
	p.explainCharges(x)
	e.explainPeek(ctx, p, x)
	e.explainAsked(ctx, p, x)
	return x, nil
}

// explain says which rule descriptor i came to.
func (p *plan) explain(d *Descriptor, i int) ExplainedDescriptor {
	m := &p.matches[i]
	x := ExplainedDescriptor{Entries: make([]string, len(d.Entries)), Hits: m.hits, Refund: d.Refund}
	for j, e := range d.Entries {
		x.Entries[j] = text(e)
	}
	if p.blocked != nil {
		p.explainBlocked(&x, m)
		return x
	}
	if !slices.Equal(m.entries, d.Entries) {
		for _, e := range m.entries {
			x.Matched = append(x.Matched, text(e))
		}
	}
	if p.domain == nil {
		x.Why = "no rules name this domain"
		return x
	}
	x.Exceptions = p.explainExceptions(m)
	x.Levels = levels(p.domain, m.entries)
	x.Why = p.why(x.Levels, m)
	if m.rule != nil {
		x.Rule, x.At = m.rule.Path, at(m.rule)
		x.Shadow, x.Quota, x.Group = m.rule.Shadow, p.inQuota(m.rule), m.rule.QuotaGroup
		x.Unlimited = m.unlimited
		x.Replaced = p.replacedBy(m)
	}
	switch {
	case m.invalid:
		x.Override = "ignored: its unit is unknown, its multiplier is 0, or the rule's algorithm cannot keep it"
	case m.override != nil:
		x.Override = fmt.Sprintf("%s, in place of the rule's numbers", rate(&m.override.Limit))
	}
	return x
}

// explainBlocked says which entry the blocklist refuses, or that another descriptor has one.
func (p *plan) explainBlocked(x *ExplainedDescriptor, m *match) {
	b := m.blocked
	if b == nil {
		x.Why = "not looked at: the blocklist refuses another descriptor of the request"
		return
	}
	x.Why = "the blocklist refuses it"
	x.Blocked = &ExplainedBlock{Key: b.Key, Match: b.Match, Reason: b.Reason, At: b.File}
	if b.Line > 0 {
		x.Blocked.At = fmt.Sprintf("%s:%d", b.File, b.Line)
	}
}

func at(r *rule.Rule) string { return fmt.Sprintf("%s:%d", r.File, r.Line) }

func rate(l *rule.Limit) string {
	if l.Multiplier > 1 {
		return fmt.Sprintf("%d per %d %ss", l.Requests, l.Multiplier, l.Unit)
	}
	return fmt.Sprintf("%d per %s", l.Requests, l.Unit)
}

// levels tells the descriptor's way down the rules, and where it ended if it did before its last entry.
func levels(d *rule.Domain, entries []rule.Entry) []Level {
	steps := d.Steps(entries)
	out := make([]Level, 0, len(entries))
	for i, s := range steps {
		out = append(out, Level{
			Entry: text(entries[i]), Match: string(s.Kind), Node: s.Node, At: fmt.Sprintf("%s:%d", s.File, s.Line),
		})
	}
	if len(steps) < len(entries) {
		out = append(out, Level{Entry: text(entries[len(steps)]), Match: noMatch})
	}
	return out
}

// noMatch is the Match of a Level that no node was found for; others are a rule.StepKind.
const noMatch = "none"

func text(e rule.Entry) string { return e.Key + "=" + e.Value }

// why says in a sentence why a limit applies, or why none does.
func (p *plan) why(levels []Level, m *match) string {
	switch {
	case m.override != nil && m.rule == nil:
		return "the request's own limit applies; it needs no rule"
	case m.rule == nil && len(levels) == 0:
		return "a descriptor without entries matches nothing"
	case m.rule == nil:
		return unmatched(levels)
	case m.override != nil:
		return "the rule matches; the request's own limit replaces its numbers"
	case m.unlimited && m.rule.Unlimited:
		return "the rule is unlimited"
	case m.unlimited && !m.rule.Unlimited:
		return "the rule matches; operators exempt the descriptor from it"
	case m.n == 0 && (len(m.rule.Limits) > 0 || m.rule.Unlimited):
		return "every limit of the rule is replaced by another rule of this request"
	case m.n == 0:
		return "the rule is a node without a limit"
	default:
		return "the rule matches"
	}
}

// unmatched says how far the entries led, of which there is at least one, and what was missing there.
func unmatched(levels []Level) string {
	last := levels[len(levels)-1]
	switch {
	case last.Match != noMatch:
		return fmt.Sprintf("%s has no limit: it only leads to the nodes below it", last.Node)
	case len(levels) == 1:
		return fmt.Sprintf("the domain has no node for %s", last.Entry)
	default:
		return fmt.Sprintf("%s has no node for %s below it", levels[len(levels)-2].Node, last.Entry)
	}
}

// replacedBy lists the limits of m's rule that others replace, and who does.
func (p *plan) replacedBy(m *match) []string {
	names := []string{m.rule.Name}
	for _, l := range m.rule.Limits {
		names = append(names, l.Name)
	}
	slices.Sort(names)
	var out []string
	for _, name := range slices.Compact(names) {
		for i := range p.matches {
			r := p.matches[i].rule
			if name != "" && r != nil && slices.Contains(r.Replaces, name) {
				out = append(out, fmt.Sprintf("%s, by %s at %s", name, r.Path, at(r)))
				break
			}
		}
	}
	return out
}

func (p *plan) explainCharges(x *Explanation) {
	for j, o := range p.owners {
		c := o.limit.Bucket.Config()
		e := ExplainedCharge{
			Limit: o.limit.Name, Algorithm: c.Algorithm.String(),
			Requests: o.limit.Requests, Unit: o.limit.Unit.String(), Multiplier: o.limit.Multiplier,
			Period: o.limit.Bucket.Period().Seconds(), Key: p.charges[j].Key.String(),
		}
		if most, _ := quota(o.limit.Bucket); most != c.Hits {
			e.Burst = most
		}
		d := &x.Descriptors[o.match]
		d.Charges = append(d.Charges, e)
	}
}

// explainPeek asks what is left: a peek writes nothing.
func (e *Engine) explainPeek(ctx context.Context, p *plan, x *Explanation) {
	peek := *p
	peek.charges = slices.Clone(p.charges)
	for j := range peek.charges {
		peek.charges[j].Hits, peek.charges[j].Book = 0, store.BookIfAdmitted
	}
	e.ask(ctx, &peek)
	x.Peek = e.outcome(&peek)
	for j := range peek.decisions {
		d, c := &peek.decisions[j], x.charge(p, j)
		c.Unpaid = d.Origin == store.Unavailable
		c.Remaining, c.Reset = clampHits(d.Remaining), d.ResetAfter.Seconds()
		c.PeekOver = !d.Allowed
	}
}

// explainAsked asks what the hits would come to: beside a charge that no bucket admits, so that all are evaluated and
// none is booked. There is no room for that one beside store.MaxCharges others.
func (e *Engine) explainAsked(ctx context.Context, p *plan, x *Explanation) {
	if len(p.charges) == store.MaxCharges {
		return
	}
	asked := *p
	asked.charges = append(slices.Clone(p.charges), store.Charge{
		Key: e.keyer.Key("nothing passes", nil), Limit: nothing, Policy: new(bucket.Policy), Hits: 1,
	})
	for j := range asked.charges {
		asked.charges[j].Book = store.BookIfAdmitted
	}
	e.ask(ctx, &asked)
	n := len(p.charges)
	asked.charges, asked.decisions = asked.charges[:n], asked.decisions[:n]
	asked.admitted = store.Admitted(asked.charges, asked.decisions)
	x.Asked = e.outcome(&asked)
	for j := range asked.decisions {
		d, c := &asked.decisions[j], x.charge(p, j)
		if c.AskedOver = !d.Allowed; c.AskedOver {
			c.RetryAfter = seconds(d.RetryAfter)
		}
	}
}

// nothing is a limit that admits nothing.
var nothing = func() *bucket.Limit {
	l, err := bucket.New(bucket.Config{Hits: 0, Unit: bucket.Second})
	if err != nil {
		panic(err) // package bucket documents that it accepts this
	}
	return l
}()

// charge returns the explanation of charge j.
func (x *Explanation) charge(p *plan, j int) *ExplainedCharge {
	i := p.owners[j].match
	return &x.Descriptors[i].Charges[j-p.matches[i].first]
}

// outcome says what a plan whose charges were taken comes to.
func (e *Engine) outcome(p *plan) *Outcome {
	var v Verdict
	e.verdict(p, &v)
	o := &Outcome{Over: v.Over, Shadowed: v.WouldDeny}
	if v.Blocked != nil {
		o.RetryAfter = seconds(bucket.Never)
	}
	if v.Nearest >= 0 {
		s := &v.Statuses[v.Nearest]
		o.Descriptor, o.Rule, o.Limit, o.Remaining = &v.Nearest, s.MetricPath(), s.Name, s.Remaining
		if s.Over {
			o.RetryAfter = seconds(s.RetryAfter)
		}
	}
	return o
}

func seconds(wait time.Duration) float64 {
	if wait == bucket.Never {
		return -1
	}
	return wait.Seconds()
}
