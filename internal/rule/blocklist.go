package rule

import (
	"cmp"
	"slices"
	"strings"
)

// Block is one entry of a domain's blocklist: entries of descriptors that it lists are refused. Immutable.
type Block struct {
	Key       string // of the entry; "" for a limit
	Match     string // how it is listed: "value" or "any_of" alone, since values may be secrets; "cidr(203.0.113.0/24)", "prefix(BadBot/)", "suffix(.invalid)"; the name of a limit that an operator blocks whole
	Reason    string // for people, "" if none was given
	File      string
	Line, Col int
}

// Blocks returns the domain's blocklist in the order of its files. The slice is the domain's own: don't write to it.
func (d *Domain) Blocks() []*Block { return d.blocks }

// Blocked returns what lists an entry in the domain's blocklist, nil if nothing does: its whole value before the longest network before the longest
// prefix or suffix; of equals the first. Keys and values are compared each on its own, in profile envoy too. It allocates only
// for text that looks like an address and is none.
func (d *Domain) Blocked(e Entry) *Block {
	b := d.blocked[e.Key]
	if b == nil {
		return nil
	}
	if block := b.exact[e.Value]; block != nil {
		return block
	}
	if block, ok := b.networks.find(e.Value); ok {
		return block
	}
	if r := b.affixes.find(e.Value); r != nil {
		return r.to
	}
	return nil
}

// blockedValues are the values of one key that are refused.
type blockedValues struct {
	exact    map[string]*Block
	networks networks[*Block]
	affixes  patterns[*Block]
}

// block checks one entry of the blocklist.
func (v *validator) block(b *blockSpec) {
	switch {
	case b.Key.s == "" && !b.Key.bad:
		v.wrong(b.at.field("key", b.Key.at), "entry of the blocklist has empty key")
	case strings.Contains(b.Key.s, "*"):
		v.invalid(b.at.field("key", b.Key.at), `"%s": want a whole key, without *`, short(b.Key.s))
	}
	if len(b.Reason.s) > maxReasonBytes {
		v.invalid(b.at.field("reason", b.Reason.at), "of %d bytes: want at most %d, since it goes into answers", len(b.Reason.s), maxReasonBytes)
	}
	fields := []matchField{
		{"value", b.Value.given}, {"any_of", b.AnyOf.given}, {"cidr", b.CIDR.given}, {"prefix", b.Prefix.given}, {"suffix", b.Suffix.given},
	}
	switch given := v.oneOf(b.at, fields); given {
	case "value":
		b.match = newValueMatch(StepExact, v.texts(b.at, given, texts{given: b.Value.given, list: []listed{{b.Value.s, b.Value.at}}}), nil)
	case "any_of":
		b.match = newValueMatch(StepAnyOf, v.texts(b.at, given, b.AnyOf), nil)
	case "cidr":
		b.match = newValueMatch(StepCIDR, nil, v.networks(b.at, b.CIDR))
	case "prefix", "suffix":
		p, _ := v.affix(b.at, given, b.Prefix, b.Suffix)
		b.match = newValueMatch(StepWildcard, []string{p}, nil)
	default:
		if !slices.ContainsFunc(fields, func(f matchField) bool { return f.bad }) {
			v.invalid(b.at, "refuses nothing: want one of value, any_of, cidr, prefix and suffix")
		}
	}
}

// listed is the entry's Block.Match.
func (b *blockSpec) listed() string {
	switch {
	case b.Value.present():
		return "value"
	case b.AnyOf.present():
		return "any_of"
	case b.Prefix.present():
		return "prefix(" + cut(b.Prefix.s, shownBytes) + ")"
	case b.Suffix.present():
		return "suffix(" + cut(b.Suffix.s, shownBytes) + ")"
	default:
		return b.match.name
	}
}

// maxReasonBytes bounds what one entry adds to an answer.
const maxReasonBytes = 256

// block compiles the blocklist.
func (d *Domain) block(specs []*blockSpec) {
	if len(specs) == 0 {
		return
	}
	d.blocked = map[string]*blockedValues{}
	affixes := map[string][]ranked[*Block]{}
	for _, s := range specs {
		at := s.at
		block := &Block{Key: s.Key.s, Match: s.listed(), Reason: s.Reason.s, File: at.file, Line: at.line, Col: at.col}
		d.blocks = append(d.blocks, block)
		b := d.blocked[s.Key.s]
		if b == nil {
			b = &blockedValues{exact: map[string]*Block{}}
			d.blocked[s.Key.s] = b
		}
		switch s.match.kind {
		case StepCIDR:
			for _, network := range s.match.nets {
				if !b.networks.has(network) {
					b.networks.insert(network, block)
				}
			}
		case StepWildcard:
			affixes[s.Key.s] = append(affixes[s.Key.s], ranked[*Block]{newPattern(s.match.texts[0]), 0, block})
		default:
			for _, text := range s.match.texts {
				if b.exact[text] == nil {
					b.exact[text] = block
				}
			}
		}
	}
	for key, list := range affixes {
		slices.SortStableFunc(list, func(a, b ranked[*Block]) int {
			return cmp.Compare(len(b.prefix)+len(b.suffix), len(a.prefix)+len(a.suffix))
		})
		for i := range list {
			list[i].rank = i
		}
		d.blocked[key].affixes = newPatterns(list)
	}
}
