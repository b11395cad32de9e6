package rule

import "strings"

// blocklist warns of addresses that are compared as text: each has many spellings.
func (l *linter) blocklist() {
	for _, b := range l.domain.blocklist {
		if b.match.kind == StepCIDR || b.match.kind == StepWildcard {
			continue
		}
		for _, text := range b.match.texts {
			if _, ok := ParseAddress(text); ok {
				l.warn(b.at, LintAddressAsText, "write it as cidr, which knows all spellings", "another spelling of the address %s is not refused", text)
				break // enough to see what is meant
			}
		}
	}
}

// lookups warns of derived entries that nothing looks at.
func (l *linter) lookups() {
	if len(l.domain.lookups) == 0 {
		return
	}
	used := map[string]bool{}
	for _, lookup := range l.domain.lookups {
		used[lookup.From.s] = true
	}
	pattern := false // a key that may be any
	var walk func(ds []*descriptorSpec)
	walk = func(ds []*descriptorSpec) {
		for _, s := range ds {
			used[s.Key.s] = true
			pattern = pattern || strings.Contains(s.Key.s, "*")
			walk(s.Descriptors)
		}
	}
	walk(l.domain.descriptors)
	for _, lookup := range l.domain.lookups {
		if !used[lookup.To.s] && !pattern {
			l.warn(lookup.at.field("to", lookup.To.at), LintDanglingLookup, "correct the key, or remove the lookup",
				"no descriptor of domain '%s' has the key '%s'", short(l.domain.name), short(lookup.To.s))
		}
	}
}
