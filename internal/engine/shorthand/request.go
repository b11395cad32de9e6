package shorthand

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// ParseRequest reads a request. It accepts whatever the wire can carry, an empty domain or an empty list of
// descriptors included: judging them is the engine's part. The error says what was wanted, and at which column.
func ParseRequest(s string) (*engine.Request, error) {
	p := parser{s: s}
	req, err := p.request()
	if err != nil {
		return nil, fmt.Errorf("request %q: column %d: %w", s, p.i+1, err)
	}
	return req, nil
}

// ParseDescriptor reads one descriptor without its brackets: k=v,k2=v2.
func ParseDescriptor(s string) (engine.Descriptor, error) {
	p := parser{s: s}
	entries, err := p.entries("")
	if err != nil {
		return engine.Descriptor{}, fmt.Errorf("descriptor %q: column %d: %w", s, p.i+1, err)
	}
	return engine.Descriptor{Entries: entries}, nil
}

// ParseOverride reads a request's own limit: 10/minute, 10/5minute; a unit the wire does not have is an error, none at
// all is the wire's UNKNOWN.
func ParseOverride(s string) (engine.Override, error) {
	p := parser{s: s}
	o, err := p.override()
	if err == nil && p.i < len(p.s) {
		err = fmt.Errorf("%q after the limit", p.s[p.i:])
	}
	if err != nil {
		return engine.Override{}, fmt.Errorf("limit %q: column %d: %w", s, p.i+1, err)
	}
	return o, nil
}

// parser walks one line from left to right; i is where it stands.
type parser struct {
	s string
	i int
}

func (p *parser) request() (*engine.Request, error) {
	domain, err := p.word("|")
	if err != nil {
		return nil, err
	}
	req := &engine.Request{Domain: domain}
	if !p.take("|") {
		return nil, errors.New("want | and descriptors after the domain")
	}
	for p.take("[") {
		d, err := p.descriptor()
		if err != nil {
			return nil, err
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	if p.take("|") {
		if !p.take("hits=") {
			return nil, errors.New("want hits=N")
		}
		n, err := p.number(32)
		if err != nil {
			return nil, err
		}
		req.Hits = uint32(n)
	}
	if p.space(); p.i < len(p.s) {
		return nil, fmt.Errorf("want [key=value, …] or | hits=N, got %q", p.s[p.i:])
	}
	return req, nil
}

// descriptor reads what follows an opening bracket.
func (p *parser) descriptor() (engine.Descriptor, error) {
	var d engine.Descriptor
	var err error
	if d.Entries, err = p.entries("]"); err != nil {
		return d, err
	}
	// Suffixes stand directly behind the bracket, so that no blank is needed between descriptors.
	if strings.HasPrefix(p.s[p.i:], "h") {
		p.i++
		d.HasHits = true
		if strings.HasPrefix(p.s[p.i:], "-") {
			p.i++
			d.Refund = true
		}
		if d.Hits, err = p.number(64); err != nil {
			return d, err
		}
	}
	if strings.HasPrefix(p.s[p.i:], "L") {
		p.i++
		d.HasOverride = true
		if d.Override, err = p.override(); err != nil {
			return d, err
		}
	}
	return d, nil
}

// entries reads key=value pairs up to and including the closing mark, or to the end of the line if there is none.
func (p *parser) entries(closing string) ([]rule.Entry, error) {
	var entries []rule.Entry
	done := func() bool {
		if closing != "" {
			return p.take(closing)
		}
		p.space()
		return p.i == len(p.s)
	}
	if done() {
		return entries, nil
	}
	for {
		key, err := p.word("=,]")
		if err != nil {
			return nil, err
		}
		if !p.take("=") {
			return nil, errors.New("want key=value")
		}
		value, err := p.word("," + closing)
		if err != nil {
			return nil, err
		}
		entries = append(entries, rule.Entry{Key: key, Value: value})
		switch {
		case done():
			return entries, nil
		case !p.take(","):
			return nil, errors.New("want a comma or the end of the descriptor")
		}
	}
}

// override reads N, N/unit or N/<multiplier>unit.
func (p *parser) override() (engine.Override, error) {
	n, err := p.number(32)
	if err != nil {
		return engine.Override{}, err
	}
	o := engine.Override{Requests: uint32(n)}
	if !strings.HasPrefix(p.s[p.i:], "/") {
		return o, nil
	}
	p.i++
	if p.i < len(p.s) && isDigit(p.s[p.i]) {
		m, err := p.number(32)
		if err != nil {
			return o, err
		}
		o.Multiplier, o.HasMultiplier = uint32(m), true
	}
	from := p.i
	for p.i < len(p.s) && isLetter(p.s[p.i]) {
		p.i++
	}
	name := p.s[from:p.i]
	unit, err := bucket.ParseUnit(name)
	number, ok := wireUnits[unit]
	if err != nil || !ok {
		p.i = from
		return o, fmt.Errorf("unit %q: want second, minute, hour, day, month or year", name)
	}
	o.Unit = number
	return o, nil
}

// wireUnits numbers the units as envoy.type.v3.RateLimitUnit does, which has no week.
var wireUnits = map[bucket.Unit]int32{
	bucket.Second: 1, bucket.Minute: 2, bucket.Hour: 3, bucket.Day: 4, bucket.Month: 5, bucket.Year: 6,
}

// word reads a quoted string, or text up to one of the marks, without the blanks around it.
func (p *parser) word(marks string) (string, error) {
	p.space()
	if strings.HasPrefix(p.s[p.i:], `"`) {
		quoted, err := strconv.QuotedPrefix(p.s[p.i:])
		if err != nil {
			return "", errors.New("a quoted string without its end")
		}
		p.i += len(quoted)
		return strconv.Unquote(quoted)
	}
	end := strings.IndexAny(p.s[p.i:], marks)
	if end < 0 || marks == "" {
		end = len(p.s) - p.i
	}
	w := p.s[p.i : p.i+end]
	p.i += end
	return strings.TrimSpace(w), nil
}

// number reads a decimal number of at most the given bits.
func (p *parser) number(bits int) (uint64, error) {
	from := p.i
	for p.i < len(p.s) && isDigit(p.s[p.i]) {
		p.i++
	}
	n, err := strconv.ParseUint(p.s[from:p.i], 10, bits)
	if err != nil {
		p.i = from
		return 0, fmt.Errorf("want a number of 0…%d", uint64(math.MaxUint64)>>(64-bits))
	}
	return n, nil
}

// take skips blanks and the given mark, and reports whether it stood there.
func (p *parser) take(mark string) bool {
	p.space()
	if !strings.HasPrefix(p.s[p.i:], mark) {
		return false
	}
	p.i += len(mark)
	return true
}

func (p *parser) space() {
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\t') {
		p.i++
	}
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
