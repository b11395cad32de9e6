package rule

import (
	"strconv"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// An identity is a domain, then a letter and its texts for every level of the path, then what tells the limits of a node apart, then the
// family of the algorithm. Every text is written as its length, a colon and its bytes, so that no two things have one identity.

func appendText(dst []byte, s string) []byte {
	dst = strconv.AppendInt(dst, int64(len(s)), 10)
	dst = append(dst, ':')
	return append(dst, s...)
}

func appendPeriod(dst []byte, unit bucket.Unit, multiplier uint32) []byte {
	dst = append(dst, 'u')
	dst = strconv.AppendUint(dst, uint64(multiplier), 10)
	return append(dst, unit.String()...)
}

// appendLevel appends one level of a configured path.
func appendLevel(dst []byte, l *level) []byte {
	letter := byte('k')
	switch {
	case l.match != nil && l.share:
		letter = 'M'
	case l.match != nil:
		letter = 'm'
	case l.share:
		letter = 's'
	case l.value != "":
		letter = 'v'
	}
	dst = appendText(append(dst, letter), l.key)
	switch {
	case l.match != nil:
		dst = appendText(dst, l.match.identity)
	case letter != 'k':
		dst = appendText(dst, l.value)
	}
	return dst
}

// appendLimit appends what makes the identity of a rule that of a limit.
func appendLimit(dst []byte, l *limitSpec) []byte {
	if l.Name.s != "" {
		dst = appendText(append(dst, 'n'), l.Name.s)
	} else {
		dst = appendPeriod(dst, l.Unit.unit, l.UnitMultiplier.n)
	}
	return append(dst, l.Algorithm.a.Family().String()...)
}

// OverrideIdentity returns the identity of the buckets of a limit that a request carries to this rule: the rule's path, the algorithm's
// family and the period, so that limits of two periods on the same entries never share a bucket. Its values are those of KeyValues.
func (r *Rule) OverrideIdentity(a bucket.Algorithm, unit bucket.Unit, multiplier uint32) string {
	b := append(append([]byte(nil), r.identity...), 'o')
	return string(append(appendPeriod(b, unit, multiplier), a.Family().String()...))
}

// OverrideIdentity is Rule.OverrideIdentity for a descriptor that no rule matches: the entries' keys stand for the path. Its values are the
// entries' values, in order.
func (d *Domain) OverrideIdentity(entries []Entry, a bucket.Algorithm, unit bucket.Unit, multiplier uint32) string {
	b := appendText(nil, d.Name)
	for _, e := range entries {
		b = appendText(append(b, 'e'), e.Key)
	}
	return string(append(appendPeriod(append(b, 'o'), unit, multiplier), a.Family().String()...))
}
