package rule

import "net/netip"

// claims are the single values that any_of and cidr of siblings take. None may be taken twice: one of the two would lose it without a word.
type claims struct {
	v        *validator
	values   map[Entry]*descriptorSpec
	networks map[networkOf]*descriptorSpec
	regexes  map[string]int // instructions so far, by key
}

// networkOf is a network among the children of a key.
type networkOf struct {
	key     string
	network netip.Prefix
}

// add notes what s takes, and reports what another took before.
func (c *claims) add(s *descriptorSpec) {
	if s.match == nil {
		return
	}
	if c.values == nil {
		*c = claims{c.v, map[Entry]*descriptorSpec{}, map[networkOf]*descriptorSpec{}, map[string]int{}}
	}
	switch s.match.kind {
	case StepAnyOf:
		for _, text := range s.match.texts {
			e := Entry{s.Key.s, text}
			c.twice(s, s.AnyOf, "any_of", text, c.values[e])
			c.values[e] = s
		}
	case StepCIDR:
		for _, network := range s.match.nets {
			n := networkOf{s.Key.s, network}
			c.twice(s, s.CIDR, "cidr", network.String(), c.networks[n])
			c.networks[n] = s
		}
	case StepRegex:
		before := c.regexes[s.Key.s]
		c.regexes[s.Key.s] += s.match.cost
		if before <= maxInstructions && c.regexes[s.Key.s] > maxInstructions {
			c.v.invalid(s.at.field("regex", s.Regex.at), "the regexes of key '%s' compile to more than %d instructions, which a value may have to pass one by one",
				short(s.Key.s), maxInstructions)
		}
	}
}

func (c *claims) twice(s *descriptorSpec, t texts, key, what string, first *descriptorSpec) {
	if first != nil {
		c.v.invalid(s.at.field(key, t.at), "%s is listed by two descriptors, first by that at %s", short(what), first.at.position())
	}
}
