package cases

import (
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
		Start yaml.Node  `yaml:"start"`
		Cases []caseSpec `yaml:"cases"`
	}
	caseSpec struct {
		Name  yaml.Node  `yaml:"name"`
		Steps []stepSpec `yaml:"steps"`
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
	var spec fileSpec
	if err := yaml.Load(data, &spec, yaml.WithKnownFields()); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	p := parsing{file: file}
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

func (p *parsing) set(spec fileSpec) *Set {
	s := &Set{file: p.file, start: defaultStart}
	if given(spec.Start) {
		t, err := time.Parse(time.RFC3339, spec.Start.Value)
		if err != nil {
			p.wrong(spec.Start.Line, "start: %q: want a time like 2026-01-31T23:59:30Z", spec.Start.Value)
		}
		s.start = t
	}
	if len(spec.Cases) == 0 {
		p.wrong(1, "cases: want at least one")
	}
	for _, c := range spec.Cases {
		s.cases = append(s.cases, p.testCase(c))
	}
	return s
}

func (p *parsing) testCase(spec caseSpec) testCase {
	c := testCase{name: spec.Name.Value, line: max(spec.Name.Line, 1)}
	if strings.TrimSpace(c.name) == "" {
		p.wrong(c.line, "a case without a name")
	}
	if len(spec.Steps) == 0 {
		p.wrong(c.line, "case %q: steps: want at least one", c.name)
	}
	now := time.Duration(0)
	for _, st := range spec.Steps {
		step := p.step(c, st, now)
		now = step.at
		c.steps = append(c.steps, step)
	}
	return c
}

// step reads a step that follows one at the time now.
func (p *parsing) step(c testCase, spec stepSpec, now time.Duration) step {
	s := step{line: spec.Ask.Line, at: now, times: 1, want: spec.Want.Value}
	if !given(spec.Ask) || !given(spec.Want) {
		line := max(spec.Ask.Line, spec.Want.Line, spec.At.Line, c.line)
		p.wrong(line, "case %q: a step wants both ask and want", c.name)
		return s
	}
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
