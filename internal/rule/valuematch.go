package rule

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

const (
	maxPatternBytes = 1 << 10 // of a regex
	maxInstructions = 1000    // of all regexes of one key among siblings: what a hostile value of maxRegexInput bytes may cost
	maxRegexInput   = 4 << 10 // bytes of a value that a regex looks at
	shownTexts      = 3       // of a list in a path
	shownBytes      = 48      // of a text in a path
	longestIdentity = 256     // bytes of a list in an identity; of longer ones a digest
)

// valueMatch is how a node matches values where it does so neither by one value, nor by a pattern, nor by none. Made by newValueMatch.
type valueMatch struct {
	kind  StepKind       // StepAnyOf, StepCIDR or StepRegex; in a blocklist others, too
	texts []string       // what any_of lists, in order, no two alike; or one text
	nets  []netip.Prefix // what cidr lists, in order, no two alike
	regex *regexp.Regexp
	cost  int // instructions of the regex

	// Both say what is matched, the same however a list is ordered and its addresses are spelt. They are made once and bounded, since every rule below has
	// them in its path and its identity.
	name     string // for people and metrics
	identity string // no other match has it
}

// newValueMatch makes the match of a list of texts, or of networks.
func newValueMatch(kind StepKind, texts []string, nets []netip.Prefix) *valueMatch {
	m := &valueMatch{kind: kind, texts: texts, nets: nets}
	items := texts
	for _, n := range nets {
		items = append(items, n.String())
	}
	b := appendText(nil, string(kind))
	for _, t := range items {
		b = appendText(b, t)
	}
	digest := sha256.Sum256(b)
	m.identity = string(b)
	if len(b) > longestIdentity {
		m.identity = string(appendText([]byte("sha256:"), string(digest[:])))
	}
	shown := make([]string, 0, shownTexts)
	whole := len(items) <= shownTexts
	for _, t := range items[:min(len(items), shownTexts)] {
		shown = append(shown, cut(t, shownBytes))
		whole = whole && len(t) <= shownBytes
	}
	text := strings.Join(shown, ",")
	if !whole {
		text += fmt.Sprintf("…%d:%x", len(items), digest[:4]) // and so another name for another list
	}
	m.name = string(kind) + "(" + text + ")"
	return m
}

// parseNetwork reads an address with or without a prefix length. A mapped IPv4 network is IPv4.
func parseNetwork(s string) (network netip.Prefix, problem string) {
	const want = `want a network such as 203.0.113.0/24 or 2001:db8::/32, or one address`
	if ip, err := netip.ParseAddr(s); err == nil {
		if ip.Zone() != "" {
			return network, want + ", without a zone"
		}
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), ""
	}
	network, err := netip.ParsePrefix(s)
	if err != nil {
		return network, want
	}
	if ip := network.Addr(); ip.Is4In6() {
		if network.Bits() < 96 {
			return network, "want the IPv4 network itself"
		}
		network = netip.PrefixFrom(ip.Unmap(), network.Bits()-96)
	}
	if m := network.Masked(); m != network {
		return network, "has bits beyond its length: want " + m.String()
	}
	return network, ""
}

// compileRegex compiles a pattern that must match a whole value, any byte of which is a character that . matches.
func compileRegex(pattern string) (re *regexp.Regexp, cost int, problem string) {
	if len(pattern) > maxPatternBytes {
		return nil, 0, fmt.Sprintf("a pattern of %d bytes: want at most %d", len(pattern), maxPatternBytes)
	}
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil { // alone, so that no bracket closes ours
		return nil, 0, "want a regular expression in RE2's syntax: " + short(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	anchored := `\A(?s:` + pattern + `)\z`
	tree, err := syntax.Parse(anchored, syntax.Perl)
	if err != nil {
		return nil, 0, "want a regular expression in RE2's syntax: " + short(err.Error())
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, 0, short(err.Error())
	}
	if len(prog.Inst) > maxInstructions {
		return nil, 0, fmt.Sprintf("compiles to %d instructions: want at most %d", len(prog.Inst), maxInstructions)
	}
	re, err = regexp.Compile(anchored)
	if err != nil {
		return nil, 0, short(err.Error())
	}
	return re, len(prog.Inst), ""
}

// values finds out what values a descriptor matches. It writes prefix and suffix as the pattern that they are, and makes the match of the others.
func (v *validator) values(s *descriptorSpec) {
	given := v.oneOf(s.at, []matchField{
		{"value", s.Value.given}, {"any_of", s.AnyOf.given}, {"cidr", s.CIDR.given}, {"prefix", s.Prefix.given},
		{"suffix", s.Suffix.given}, {"regex", s.Regex.given},
	})
	switch given {
	case "prefix", "suffix":
		p, ok := v.affix(s.at, given, s.Prefix, s.Suffix)
		s.Value.given, s.Value.s = s.Prefix.given, p
		if given == "suffix" {
			s.Value.given = s.Suffix.given
		}
		s.Value.bad = !ok
		return
	case "any_of":
		s.match = newValueMatch(StepAnyOf, v.texts(s.at, "any_of", s.AnyOf), nil)
	case "cidr":
		s.match = newValueMatch(StepCIDR, nil, v.networks(s.at, s.CIDR))
	case "regex":
		s.match = v.regex(s)
	default:
		return
	}
	if strings.Contains(s.Key.s, "*") {
		v.invalid(s.at.field("key", s.Key.at), "a * in the key goes with no %s: want value, prefix or suffix, or a key without it", given)
	}
}

// matchField is one of several keys of which a mapping may have one.
type matchField struct {
	key string
	given
}

// oneOf returns the key that was given, the first if there are several, which it reports; "" if there is none, or it was not understood.
func (v *validator) oneOf(at place, all []matchField) (key string) {
	for _, f := range all {
		switch {
		case !f.present():
		case f.bad:
			return ""
		case key != "":
			v.invalid(at.field(f.key, f.at), "want %s or %s, not both", key, f.key)
			return key
		default:
			key = f.key
		}
	}
	return key
}

// affix returns the pattern of a prefix or a suffix, ok if there is one.
func (v *validator) affix(at place, key string, prefix, suffix text) (pattern string, ok bool) {
	t := prefix
	pattern = prefix.s + "*"
	if key == "suffix" {
		t = suffix
		pattern = "*" + suffix.s
	}
	switch {
	case t.s == "":
		v.invalid(at.field(key, t.at), "is empty: want text, or no %s", key)
	case strings.Contains(t.s, "*"):
		v.invalid(at.field(key, t.at), `"%s": want text without *, which makes a pattern in value alone`, short(t.s))
	default:
		return pattern, true
	}
	return "", false
}

// texts returns what any_of lists, in order.
func (v *validator) texts(at place, key string, t texts) []string {
	list := make([]string, 0, len(t.list))
	seen := make(map[string]mark, len(t.list))
	if len(t.list) == 0 {
		v.invalid(at.field(key, t.at), "lists nothing: want at least one value")
	}
	for i, item := range t.list {
		here := t.item(at.field(key, t.at), i)
		first, twice := seen[item.s]
		switch {
		case item.s == "":
			v.invalid(here, "is empty: want text")
		case strings.Contains(item.s, "*"):
			v.invalid(here, `"%s": want a whole value, without *`, short(item.s))
		case twice:
			v.invalid(here, "'%s' is listed twice, first on line %d", short(item.s), first.line)
		default:
			seen[item.s] = item.at
			list = append(list, item.s)
		}
	}
	slices.Sort(list)
	return list
}

// networks returns what cidr lists, in order.
func (v *validator) networks(at place, t texts) []netip.Prefix {
	list := make([]netip.Prefix, 0, len(t.list))
	seen := make(map[netip.Prefix]mark, len(t.list))
	if len(t.list) == 0 {
		v.invalid(at.field("cidr", t.at), "lists nothing: want at least one network")
	}
	for i, item := range t.list {
		here := t.item(at.field("cidr", t.at), i)
		network, problem := parseNetwork(item.s)
		if problem != "" {
			v.invalid(here, `"%s": %s`, short(item.s), problem)
			continue
		}
		if first, twice := seen[network]; twice {
			v.invalid(here, "%s is listed twice, first on line %d", network, first.line)
			continue
		}
		seen[network] = item.at
		list = append(list, network)
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return list
}

func (v *validator) regex(s *descriptorSpec) *valueMatch {
	m := newValueMatch(StepRegex, []string{s.Regex.s}, nil)
	var problem string
	if s.Regex.s == "" {
		problem = "is empty: want a regular expression"
	} else {
		m.regex, m.cost, problem = compileRegex(s.Regex.s)
	}
	if problem != "" {
		v.invalid(s.at.field("regex", s.Regex.at), "%s", problem)
		m.regex = neverMatches
	}
	return m
}

// neverMatches stands in for a regex that does not compile, so that the rest of its descriptor is checked.
var neverMatches = regexp.MustCompile(`\z\A.`)
