package script

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// fields reads the words of one line in order. Its first error stays.
type fields struct {
	words []string
	err   error
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

// next returns the next word, "" at the end.
func (f *fields) next() string {
	if len(f.words) == 0 {
		return ""
	}
	w := f.words[0]
	f.words = f.words[1:]
	return w
}

// is consumes the given words if they come next.
func (f *fields) is(words ...string) bool {
	if len(f.words) < len(words) {
		return false
	}
	for i, w := range words {
		if f.words[i] != w {
			return false
		}
	}
	f.words = f.words[len(words):]
	return true
}

func (f *fields) want(words ...string) {
	if !f.is(words...) {
		f.fail("want %q before %q", strings.Join(words, " "), strings.Join(f.words, " "))
	}
}

func (f *fields) number() int64 {
	w := f.next()
	n, err := strconv.ParseInt(w, 10, 64)
	if err != nil {
		f.fail("%q: want a number", w)
	}
	return n
}

func (f *fields) duration() time.Duration {
	w := f.next()
	d, err := time.ParseDuration(w)
	if err != nil {
		f.fail("%q: want a duration such as 1.5s", w)
	}
	return d
}

// limit reads what follows the word limit.
func (f *fields) limit() *bucket.Limit {
	var c bucket.Config
	var err error
	if c.Algorithm, err = bucket.ParseAlgorithm(f.next()); err != nil {
		f.fail("%w", err)
	}
	c.Hits = f.number()
	f.want("per")
	unit := f.next()
	if n, err := strconv.ParseInt(unit, 10, 64); err == nil {
		c.Multiplier = n
		unit = f.next()
	}
	if c.Unit, err = bucket.ParseUnit(strings.TrimSuffix(unit, "s")); err != nil {
		f.fail("%w", err)
	}
	for len(f.words) > 0 && f.err == nil {
		switch {
		case f.is("burst"):
			c.Burst = f.number()
		case f.is("debt"):
			c.Debt = f.number()
		case f.is("max_delay"):
			c.MaxDelay = f.duration()
		case f.is("calendar"):
			if c.Calendar, err = time.LoadLocation(f.next()); err != nil {
				f.fail("%w", err)
			}
		case f.is("envoy"):
			c.Envoy = true
		default:
			f.fail("%q: not a part of a limit", f.next())
		}
	}
	if f.err != nil {
		return nil
	}
	l, err := bucket.New(c)
	if err != nil {
		f.fail("%w", err)
	}
	return l
}

// ask reads a verb and what belongs to it. name is what a grant is called, if the line says so.
func (f *fields) ask(queue time.Duration, ticks map[string]int64) (a bucket.Ask, name string) {
	a.Mode, a.MaxDelay = bucket.Fit, queue.Microseconds()
	switch {
	case f.is("peek"):
	case f.is("take"):
		a.Hits = f.number()
		if f.is("at", "least") {
			a.AtLeast = f.number()
		}
		if f.is("waiting") {
			a.MaxDelay = f.duration().Microseconds()
		}
	case f.is("report"):
		a.Mode, a.Hits = bucket.Report, f.number()
	case f.is("count"):
		a.Mode, a.Hits = bucket.Count, f.number()
	case f.is("give", "back"):
		a.Hits = -f.number()
		if f.is("of") {
			of := f.next()
			tick, ok := ticks[of]
			if !ok {
				f.fail("%q: no grant was called so", of)
			}
			a.Tick = tick
		}
	default:
		f.fail("%q: want take, peek, report, count or give back", strings.Join(f.words, " "))
	}
	if f.is("as") {
		name = f.next()
	}
	if len(f.words) > 0 {
		f.fail("%q: more than was expected", strings.Join(f.words, " "))
	}
	return a, name
}
