package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// Difference is what becomes of one limit, or of an unlimited rule, from one set of rules to another.
type Difference struct {
	Name   string `json:"name"`             // of the limit, as check prints it
	Before string `json:"before,omitempty"` // "": it is new
	After  string `json:"after,omitempty"`  // "": it goes
	Fresh  bool   `json:"fresh,omitempty"`  // its buckets start afresh: what was spent is forgotten
}

// String returns a line: + for what is new, - for what goes, ~ for what changes.
func (d Difference) String() string {
	switch {
	case d.Before == "":
		return fmt.Sprintf("+ %s: %s", d.Name, d.After)
	case d.After == "":
		return fmt.Sprintf("- %s: %s", d.Name, d.Before)
	case d.Fresh:
		return fmt.Sprintf("~ %s: %s -> %s, its buckets start afresh", d.Name, d.Before, d.After)
	default:
		return fmt.Sprintf("~ %s: %s -> %s", d.Name, d.Before, d.After)
	}
}

// Diff returns what becomes of the limits, in the order of their names. A nil snapshot has none.
func Diff(before, after *rule.Snapshot) []Difference {
	was, is := described(before), described(after)
	var out []Difference
	for name, a := range is {
		b, ok := was[name]
		switch {
		case !ok:
			out = append(out, Difference{Name: name, After: a.text})
		case a != b:
			out = append(out, Difference{Name: name, Before: b.text, After: a.text, Fresh: a.identity != b.identity})
		}
	}
	for name, b := range was {
		if _, ok := is[name]; !ok {
			out = append(out, Difference{Name: name, Before: b.text})
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

type description struct{ text, identity string }

func described(s *rule.Snapshot) map[string]description {
	out := map[string]description{}
	if s == nil {
		return out
	}
	for _, d := range s.Domains() {
		for _, r := range d.Rules() {
			if r.Unlimited {
				out[d.Name+"."+r.Path] = description{text: "unlimited" + modes(r)}
			}
			for _, l := range r.Limits {
				out[l.Policy.Rule] = description{describe(l), l.Identity}
			}
		}
	}
	return out
}

func describe(l *rule.Limit) string {
	c := l.Bucket.Config()
	var b strings.Builder
	fmt.Fprintf(&b, "%d/", l.Requests)
	if l.Multiplier > 1 {
		fmt.Fprint(&b, l.Multiplier)
	}
	fmt.Fprintf(&b, "%s %s", l.Unit, c.Algorithm)
	if c.Burst > 0 && c.Burst != c.Hits {
		fmt.Fprintf(&b, " burst %d", c.Burst)
	}
	if c.Debt > 0 {
		fmt.Fprintf(&b, " debt %d", c.Debt)
	}
	if c.MaxDelay > 0 {
		fmt.Fprintf(&b, " max_delay %s", c.MaxDelay)
	}
	if c.Calendar != nil {
		fmt.Fprintf(&b, " calendar %s", c.Calendar)
	}
	fmt.Fprintf(&b, " %s", l.Policy.OnFailure)
	return b.String() + modes(l.Rule)
}

func modes(r *rule.Rule) (s string) {
	if r.Shadow {
		s += " shadow"
	}
	if r.Quota {
		s += " quota"
	}
	return s
}
