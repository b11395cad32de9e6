package rule

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// pattern is a text in which every * stands for any text, also none. It is cut at its stars.
type pattern struct {
	prefix  string
	middles []string // in order, none empty
	suffix  string
}

// newPattern cuts a text that has at least one star.
func newPattern(s string) pattern {
	parts := strings.Split(s, "*")
	last := len(parts) - 1
	return pattern{parts[0], slices.DeleteFunc(parts[1:last], func(m string) bool { return m == "" }), parts[last]}
}

func (p *pattern) match(s string) bool {
	return len(s) >= len(p.prefix)+len(p.suffix) && strings.HasPrefix(s, p.prefix) && strings.HasSuffix(s, p.suffix) &&
		p.matchMiddles(s[len(p.prefix):len(s)-len(p.suffix)])
}

// matchMiddles looks for the middles in order, each as far left as it goes: if they fit at all, they fit so.
func (p *pattern) matchMiddles(s string) bool {
	for _, m := range p.middles {
		i := strings.Index(s, m)
		if i < 0 {
			return false
		}
		s = s[i+len(m):]
	}
	return true
}

// ranked is a pattern, its rank among its siblings (the least wins) and what it leads to.
type ranked[V any] struct {
	pattern
	rank int
	to   V
}

// patterns finds, of many patterns, the one of least rank that matches a text. It looks only at patterns whose prefix and suffix fit, which it
// finds by binary search. The zero value holds none.
type patterns[V any] struct {
	prefixes chain
	byPrefix []ofPrefix[V]
}

// ofPrefix are the patterns of one prefix.
type ofPrefix[V any] struct {
	least    int // least rank of these and of those of all shorter prefixes that fit too
	suffixes chain
	bySuffix []ofAffixes[V]
}

// ofAffixes are the patterns of one prefix and one suffix, by rank.
type ofAffixes[V any] struct {
	least int // least rank of these and of those of all shorter suffixes that fit too
	list  []ranked[V]
}

func newPatterns[V any](all []ranked[V]) patterns[V] {
	var ps patterns[V]
	groups := groupBy(all, func(r *ranked[V]) string { return r.prefix })
	ps.prefixes = newChain(keysOf(groups), false)
	for i, prefix := range ps.prefixes.texts {
		inner := groupBy(groups[prefix], func(r *ranked[V]) string { return r.suffix })
		s := ofPrefix[V]{suffixes: newChain(keysOf(inner), true)}
		for j, suffix := range s.suffixes.texts {
			list := inner[suffix]
			slices.SortFunc(list, func(a, b ranked[V]) int { return cmp.Compare(a.rank, b.rank) })
			s.bySuffix = append(s.bySuffix, ofAffixes[V]{list[0].rank, list})
			if up := s.suffixes.parent[j]; up >= 0 {
				s.bySuffix[j].least = min(s.bySuffix[j].least, s.bySuffix[up].least)
			}
		}
		s.least = slices.MinFunc(groups[prefix], func(a, b ranked[V]) int { return cmp.Compare(a.rank, b.rank) }).rank
		if up := ps.prefixes.parent[i]; up >= 0 {
			s.least = min(s.least, ps.byPrefix[up].least)
		}
		ps.byPrefix = append(ps.byPrefix, s)
	}
	return ps
}

// find returns the best match, nil if none matches.
func (ps *patterns[V]) find(s string) *ranked[V] {
	var best *ranked[V]
	for i := ps.prefixes.longest(s); i >= 0; i = ps.prefixes.parent[i] {
		of := &ps.byPrefix[i]
		if best != nil && best.rank <= of.least {
			break
		}
		rest := s[len(ps.prefixes.texts[i]):]
		for j := of.suffixes.longest(rest); j >= 0; j = of.suffixes.parent[j] {
			b := &of.bySuffix[j]
			if best != nil && best.rank <= b.least {
				break
			}
			middle := rest[:len(rest)-len(of.suffixes.texts[j])]
			for k := range b.list {
				r := &b.list[k]
				if best != nil && best.rank <= r.rank {
					break
				}
				if r.matchMiddles(middle) {
					best = r
					break
				}
			}
		}
	}
	return best
}

// chain is a set of texts, each linked to the longest other one that it begins with, or ends with if backward.
type chain struct {
	texts    []string // in order, read backward if backward; a text stands before all that begin with it
	parent   []int    // -1: none
	backward bool
}

func newChain(texts []string, backward bool) chain {
	c := chain{texts, make([]int, len(texts)), backward}
	slices.SortFunc(texts, func(a, b string) int {
		switch {
		case c.after(a, b):
			return 1
		case c.after(b, a):
			return -1
		}
		return 0
	})
	for i := range texts {
		c.parent[i] = -1
		if i > 0 {
			c.parent[i] = c.fitting(i-1, texts[i])
		}
	}
	return c
}

// longest returns the index of the longest of the texts that s begins (or ends) with, -1 if there is none.
func (c *chain) longest(s string) int {
	// Whatever s begins with stands at or before the last text that is not after s, and is that text or begins it.
	return c.fitting(sort.Search(len(c.texts), func(i int) bool { return c.after(c.texts[i], s) })-1, s)
}

// fitting returns the first of i, its parent, its parent's parent … that s begins (or ends) with.
func (c *chain) fitting(i int, s string) int {
	if i < 0 {
		return -1
	}
	common := c.common(c.texts[i], s)
	for i >= 0 && len(c.texts[i]) > common {
		i = c.parent[i]
	}
	return i
}

// after reports whether a stands after b. (strings.Compare would make every text that is looked for escape to the heap.)
func (c *chain) after(a, b string) bool {
	if !c.backward {
		return a > b
	}
	n := c.common(a, b)
	if n == len(a) || n == len(b) {
		return len(a) > len(b)
	}
	return a[len(a)-1-n] > b[len(b)-1-n]
}

// common is how many bytes a and b begin (or end) with in common.
func (c *chain) common(a, b string) int {
	n := min(len(a), len(b))
	if c.backward {
		a, b = a[len(a)-n:], b[len(b)-n:]
		for i := range n {
			if a[n-1-i] != b[n-1-i] {
				return i
			}
		}
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func groupBy[V any](all []ranked[V], key func(*ranked[V]) string) map[string][]ranked[V] {
	m := map[string][]ranked[V]{}
	for i := range all {
		k := key(&all[i])
		m[k] = append(m[k], all[i])
	}
	return m
}

func keysOf[V any](m map[string][]ranked[V]) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}
