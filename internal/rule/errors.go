package rule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in one file.
type Error struct {
	File      string // the File's Name
	Line, Col int    // from 1; Col counts characters
	Path      string // the field, "descriptors[2].rate_limit.unit"; "" for the file as a whole
	Msg       string // what is wrong and what was wanted

	structural bool // of a kind that the JSON Schema refuses too
}

// Error returns "file:line:col: path: message", in one line.
func (e *Error) Error() string {
	return place{e.File, e.Path, mark{e.Line, e.Col}}.String() + ": " + e.Msg
}

// Errors is every mistake found in the files, in the order of file, line and column. Load returns it as its error; it is never empty then.
type Errors []*Error

// Error returns one Error a line.
func (es Errors) Error() string {
	return strings.Join(es.lines(), "\n")
}

// Mistakes returns what err says of rules, a text for each mistake: those of the Errors in it, else err as one; none for nil.
func Mistakes(err error) []string {
	if err == nil {
		return nil
	}
	es, ok := errors.AsType[Errors](err)
	if !ok {
		return []string{err.Error()}
	}
	return es.lines()
}

func (es Errors) lines() []string {
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = e.Error()
	}
	return out
}

// Unwrap returns the errors one by one, for errors.As.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// Warning is something that loads and is probably not what its writer meant.
type Warning struct {
	File      string
	Line, Col int
	Path      string
	Code      string // the lint's name, one of the Lint constants
	Msg       string // what was found
	Hint      string // what to do about it
}

// String returns "file:line:col: path: message (code); hint", in one line.
func (w Warning) String() string {
	return fmt.Sprintf("%s: %s (%s); %s", place{w.File, w.Path, mark{w.Line, w.Col}}, w.Msg, w.Code, w.Hint)
}

// mark is a position in a file, from 1. The zero value is nowhere.
type mark struct{ line, col int }

// place is a position and the path of what stands there.
type place struct {
	file, path string
	mark
}

func (p place) String() string {
	s := fmt.Sprintf("%s:%d:%d", p.file, p.line, p.col)
	if p.path != "" {
		s += ": " + p.path
	}
	return s
}

// position names the place for the end of another place's message.
func (p place) position() string { return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.col) }

// field returns the place of a key of the mapping at p, or of p itself if the key was not given.
func (p place) field(key string, at mark) place {
	if at == (mark{}) {
		at = p.mark
	}
	if strings.Trim(key, wordBytes) != "" {
		key = `"` + short(key) + `"`
	}
	if p.path != "" {
		key = p.path + "." + key
	}
	return place{p.file, key, at}
}

// wordBytes need no quotes in a path.
const wordBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// maxErrors is how many errors, and how many warnings, a Load collects: enough for any person, few enough that a hostile file of 1 MiB stays cheap.
const maxErrors = 1000

// problems collects what a Load finds.
type problems struct {
	errs     Errors
	warnings []Warning
}

func (p *problems) add(structural bool, at place, format string, args ...any) {
	if len(p.errs) > maxErrors {
		return
	}
	msg := fmt.Sprintf(format, args...)
	if len(p.errs) == maxErrors {
		msg, structural = fmt.Sprintf("more than %d errors; the rest are not shown", maxErrors), false
	}
	p.errs = append(p.errs, &Error{File: at.file, Line: at.line, Col: at.col, Path: at.path, Msg: msg, structural: structural})
}

// wrong reports a mistake of form: one that can be seen without knowing what the file means, and that the JSON Schema refuses too.
func (p *problems) wrong(at place, format string, args ...any) { p.add(true, at, format, args...) }

// invalid reports a mistake of meaning.
func (p *problems) invalid(at place, format string, args ...any) { p.add(false, at, format, args...) }

func (p *problems) warn(at place, code, hint, format string, args ...any) {
	if len(p.warnings) >= maxErrors {
		return
	}
	p.warnings = append(p.warnings, Warning{at.file, at.line, at.col, at.path, code, fmt.Sprintf(format, args...), hint})
}

// sort puts errors and warnings in the order of the files, then of their place. Equal places keep the order in which they were found.
func (p *problems) sort() {
	slices.SortStableFunc(p.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	slices.SortStableFunc(p.warnings, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}
