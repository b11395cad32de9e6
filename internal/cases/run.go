package cases

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
)

// How a wait that never ends is written.
const (
	neverWord = "never"
	neverWait = bucket.Never
)

// keySecret derives the keys of cases, which no other process shares.
const keySecret = "unit tests of limits"

// Result is what became of one case.
type Result struct {
	Name     string    `json:"name"`
	Line     int       `json:"line"`
	Asked    int       `json:"asked"` // requests, of all steps
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is one step that was not answered as expected; of a step that asks several times, the first such answer.
type Failure struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Case string `json:"case"`
	Got  string `json:"got"`
	Want string `json:"want"`
}

// String returns "file:line: got …, want … (case …)".
func (f Failure) String() string {
	return fmt.Sprintf("%s:%d: got %s, want %s (case %q)", f.File, f.Line, f.Got, f.Want, f.Case)
}

// Run runs every case against the rules, each from empty buckets. The error is of a case that could not be run at all.
func (s *Set) Run(ctx context.Context, rules *rule.Snapshot) ([]Result, error) {
	results := make([]Result, 0, len(s.cases))
	for _, c := range s.cases {
		r, err := s.run(ctx, rules, c)
		if err != nil {
			return results, fmt.Errorf("%s:%d: case %q: %w", s.file, c.line, c.name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// world is what one case runs in.
type world struct {
	engine *engine.Engine
	now    time.Time
	held   time.Duration // how long the last answer was held in a queue
}

func newWorld(rules *rule.Snapshot, start time.Time) (*world, error) {
	w := &world{now: start}
	keyer, err := store.NewKeyer([]byte(keySecret))
	if err != nil {
		return nil, err
	}
	clock := func() time.Time { return w.now }
	w.engine, err = engine.New(engine.Options{
		Snapshots: fixed{rules}, Store: memstore.New(memstore.Options{Now: clock}), Keyer: keyer, Now: clock,
		// A held answer is noted and given at once: in a case time passes between steps only.
		Hold: func(_ context.Context, d time.Duration) error {
			w.held = d
			return nil
		},
	})
	return w, err
}

// fixed are rules that never change.
type fixed struct{ rules *rule.Snapshot }

func (f fixed) Current() *rule.Snapshot { return f.rules }

func (s *Set) run(ctx context.Context, rules *rule.Snapshot, c testCase) (Result, error) {
	r := Result{Name: c.name, Line: c.line}
	w, err := newWorld(rules, s.start)
	if err != nil {
		return r, err
	}
	for _, step := range c.steps {
		w.now = s.start.Add(step.at)
		failed := false
		for n := 1; n <= step.times; n++ {
			if err := ctx.Err(); err != nil {
				return r, err
			}
			r.Asked++
			got, ok := w.ask(ctx, step)
			if ok || failed {
				continue
			}
			failed = true
			if step.times > 1 {
				got += fmt.Sprintf(" at the %s of %d", ordinal(n), step.times)
			}
			r.Failures = append(r.Failures, Failure{s.file, step.line, c.name, got, step.expected()})
		}
	}
	return r, nil
}

// ask puts one request and reports the answer, in the words in which it was expected, and whether it was as expected.
func (w *world) ask(ctx context.Context, s step) (got string, ok bool) {
	w.held = 0
	var v engine.Verdict
	if err := w.engine.Decide(ctx, s.request, &v); err != nil {
		return "error: " + err.Error(), false
	}
	ok = s.answer.Matches(&v)
	words := []string{shorthand.FormatAnswer(&v)}
	wait, limit := time.Duration(0), ""
	if v.Nearest >= 0 {
		wait, limit = v.Statuses[v.Nearest].RetryAfter, v.Statuses[v.Nearest].Name
	}
	if s.wait != nil {
		words = append(words, "wait "+formatWait(wait))
		ok = ok && wait == *s.wait
	}
	if s.delay != nil {
		words = append(words, "delay "+w.held.String())
		ok = ok && w.held == *s.delay
	}
	if s.limit != nil {
		words = append(words, fmt.Sprintf("limit %q", limit))
		ok = ok && limit == *s.limit
	}
	return strings.Join(words, ", "), ok
}

// expected writes what a step wants, in the same words.
func (s step) expected() string {
	words := []string{s.want}
	if s.wait != nil {
		words = append(words, "wait "+formatWait(*s.wait))
	}
	if s.delay != nil {
		words = append(words, "delay "+s.delay.String())
	}
	if s.limit != nil {
		words = append(words, fmt.Sprintf("limit %q", *s.limit))
	}
	return strings.Join(words, ", ")
}

func formatWait(d time.Duration) string {
	if d == neverWait {
		return neverWord
	}
	return d.String()
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}
