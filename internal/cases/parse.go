package cases

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
)

// defaultStart is when a case begins if its file does not say: a midnight in UTC, so that windows begin there too.
var defaultStart = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// maxTimes bounds how often a step asks.
const maxTimes = 1_000_000

// Set is the cases of one file. Immutable; made by Parse.
type Set struct {
	file  string
	start time.Time
	cases []testCase
}

type testCase struct {
	name  string
	line  int
	steps []step
}

// step asks once or several times at one instant.
type step struct {
	line    int
	at      time.Duration // since the case's start
	times   int
	request *engine.Request
	answer  shorthand.Answer
	want    string         // the answer as written
	wait    *time.Duration // bucket.Never for "never"
	delay   *time.Duration
	limit   *string
}

// The file as it is written. Values that are judged after decoding are kept as nodes, which know their line.
type (
	fileSpec struct {
		Start yaml.Node   `yaml:"start"`
		Cases []yaml.Node `yaml:"cases"` // of caseSpec
	}
	caseSpec struct {
		Name  string      `yaml:"name"`
		Steps []yaml.Node `yaml:"steps"` // of stepSpec
	}
	stepSpec struct {
		At    yaml.Node `yaml:"at"`
		Ask   yaml.Node `yaml:"ask"`
		Times yaml.Node `yaml:"times"`
		Want  yaml.Node `yaml:"want"`
		Wait  yaml.Node `yaml:"wait"`
		Delay yaml.Node `yaml:"delay"`
		Limit yaml.Node `yaml:"limit"`
	}
)

// Parse reads the cases of a file. The error lists everything that is wrong, as file:line: message.
func Parse(file string, data []byte) (*Set, error) {
	p := parsing{file: file}
	var spec fileSpec
	if err := yaml.Load(data, &spec, yaml.WithKnownFields()); err != nil {
		p.undecoded(1, err)
	}
	s := p.set(spec)
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	return s, nil
}

// parsing collects what is wrong.
type parsing struct {
	file string
	errs []error
}

func (p *parsing) wrong(line int, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s:%d: "+format, append([]any{p.file, line}, args...)...))
}

// undecoded notes what the decoder says of a mapping that begins at line, with the lines that it knows better.
func (p *parsing) undecoded(line int, err error) {
	var several *yaml.LoadErrors
	var one *yaml.LoadError
	switch {
	case errors.As(err, &several):
	case errors.As(err, &one):
		several = &yaml.LoadErrors{Errors: []*yaml.LoadError{one}}
	default:
		p.wrong(line, "%w", err)
		return
	}
	for _, e := range several.Errors {
		message, _, _ := strings.Cut(e.Message, " in type ") // the Go type helps nobody
		p.wrong(cmp.Or(e.Mark.Line, line), "%s", message)
	}
}

func (p *parsing) set(spec fileSpec) *Set {
	s := &Set{file: p.file, start: defaultStart}
	if given(spec.Start) {
		t, err := time.Parse(time.RFC3339, spec.Start.Value)
		if err != nil {
			p.wrong(spec.Start.Line, "start: %q: want a time like 2026-01-31T23:59:30Z", spec.Start.Value)
		}
		s.start = t
	}
	if len(spec.Cases) == 0 && len(p.errs) == 0 {
		p.wrong(1, "cases: want at least one")
	}
	for i := range spec.Cases {
		s.cases = append(s.cases, p.testCase(&spec.Cases[i]))
	}
	return s
}

func (p *parsing) testCase(n *yaml.Node) testCase {
	var spec caseSpec
	if err := n.Load(&spec, yaml.WithKnownFields()); err != nil {
		p.undecoded(n.Line, err)
		return testCase{}
	}
	c := testCase{name: spec.Name, line: n.Line}
	if strings.TrimSpace(c.name) == "" {
		p.wrong(c.line, "a case wants a name")
	}
	if len(spec.Steps) == 0 {
		p.wrong(c.line, "steps: want at least one")
	}
	now := time.Duration(0)
	for i := range spec.Steps {
		var step stepSpec
		if err := spec.Steps[i].Load(&step, yaml.WithKnownFields()); err != nil {
			p.undecoded(spec.Steps[i].Line, err)
			continue
		}
		st := p.step(spec.Steps[i].Line, step, now)
		now = st.at
		c.steps = append(c.steps, st)
	}
	return c
}

// step reads a step that begins at line and follows one at the time now.
func (p *parsing) step(line int, spec stepSpec, now time.Duration) step {
	s := step{line: line, at: now, times: 1, want: spec.Want.Value}
	if !given(spec.Ask) || !given(spec.Want) {
		p.wrong(line, "a step wants both ask and want")
		return s
	}
	s.line = spec.Ask.Line
	var err error
	if s.request, err = shorthand.ParseRequest(spec.Ask.Value); err != nil {
		p.wrong(spec.Ask.Line, "ask: %w", err)
	}
	if s.answer, err = shorthand.ParseAnswer(spec.Want.Value); err != nil {
		p.wrong(spec.Want.Line, "want: %w", err)
	}
	if given(spec.At) {
		if at := p.duration("at", spec.At, false); at != nil && *at >= now {
			s.at = *at
		} else if at != nil {
			p.wrong(spec.At.Line, "at: %v is before the step ahead of it, at %v", *at, now)
		}
	}
	if given(spec.Times) {
		if err := spec.Times.Decode(&s.times); err != nil || s.times < 1 || s.times > maxTimes {
			p.wrong(spec.Times.Line, "times: %q: want 1…%d", spec.Times.Value, maxTimes)
		}
	}
	if given(spec.Wait) {
		s.wait = p.duration("wait", spec.Wait, true)
	}
	if given(spec.Delay) {
		s.delay = p.duration("delay", spec.Delay, false)
	}
	if given(spec.Limit) {
		s.limit = &spec.Limit.Value
	}
	return s
}

// duration reads a time of 0 or more, or "never" where that is one.
func (p *parsing) duration(field string, n yaml.Node, never bool) *time.Duration {
	if never && n.Value == neverWord {
		d := neverWait
		return &d
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil || d < 0 {
		p.wrong(n.Line, "%s: %q: want a time like 30s, 1m30s or 500ms", field, n.Value)
		return nil
	}
	return &d
}

func given(n yaml.Node) bool { return n.Kind != 0 }
