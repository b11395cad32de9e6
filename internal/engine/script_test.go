package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// A script is a conversation with an engine, one line each, read from testdata/cases:
//
//	rules                          the YAML below it, indented, becomes the rules; the store keeps what it has
//	and                            a further file of the same rules
//	warning TEXT                   loading them warned of this, too
//	fresh                          an empty store and new counters, at the first instant, with the same rules
//	shadow                         the engine refuses nothing (--shadow) from here on
//	quota                          every limit is one of quota_mode (QUOTA_MODE) from here on
//	start 2028-02-29T23:59:30Z     the first instant; 2026-01-01T00:00:00Z if not given
//	keys N                         so many buckets have state
//	metric NAME{label="v"} = N     a counter, as /metrics writes it
//	every 100ms for 10s REQUEST -> 32..33       asked that often, so many are admitted
//	[at 1.5s] [xN] REQUEST -> ANSWER            asked N times, 1.5 s after the first instant
//
// A request is as package shorthand says. An answer is an overall code and a status for every descriptor, which is none,
// or unlimited, or any of OK or OVER, rN (remaining), wait D or never (RetryAfter), reset D, name N, quota N, window D, path P
// (of metrics), or blocked; what is not said may be anything. After it may follow nearest N (a descriptor's index), shadowed, or
// because REASON of the blocklist, in this order. An error is error TEXT.
type script struct {
	t       *testing.T
	backend backend
	name    string
	line    int

	start  time.Time
	now    atomic.Int64 // nanoseconds since the epoch
	shadow bool
	quota  bool
	files  []rule.File
	rules  snapshots
	warned string
	keys   func() int
	engine *engine.Engine
	meter  *prometheus.Registry
}

// snapshots is a source of rules that a test sets.
type snapshots struct{ atomic.Pointer[rule.Snapshot] }

func (s *snapshots) Current() *rule.Snapshot { return s.Load() }

// runCase runs testdata/cases/<number>_*.txt on every store.
func runCase(t *testing.T, number string) {
	t.Helper()
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join("testdata", "cases", number+"_*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no script for %s: %v", number, err)
	}
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for _, path := range paths {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				runScript(t, b, path, string(text))
			}
		})
	}
}

func runScript(t *testing.T, b backend, name, text string) {
	t.Helper()
	s := &script{t: t, backend: b, name: filepath.Base(name)}
	s.start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		s.line = i + 1
		line := strings.TrimSpace(lines[i])
		switch verb, rest, _ := strings.Cut(line, " "); {
		case line == "" || line[0] == '#':
		case verb == "rules" || verb == "and":
			j := i + 1
			for j < len(lines) && (lines[j] == "" || lines[j][0] == ' ') {
				j++
			}
			if verb == "rules" {
				s.files = nil
			}
			s.load(strings.Join(lines[i+1:j], "\n"))
			i = j - 1
		case verb == "warning":
			if !strings.Contains(s.warned, rest) {
				s.errorf("got warnings %q, want one of %q", s.warned, rest)
			}
		case verb == "fresh":
			s.open()
		case verb == "quota":
			s.quota = true
			s.open()
		case verb == "shadow":
			s.shadow = true
			s.open()
		case verb == "start":
			at, err := time.Parse(time.RFC3339, rest)
			s.check(err)
			s.start = at
			s.open()
		case verb == "keys":
			if got, want := s.keys(), s.number(rest); got != want {
				s.errorf("got %d keys, want %d", got, want)
			}
		case verb == "metric":
			s.metric(rest)
		case verb == "every":
			s.every(rest)
		default:
			s.ask(line)
		}
	}
}

func (s *script) errorf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("%s:%d: %s", s.name, s.line, fmt.Sprintf(format, args...))
}

func (s *script) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s:%d: %v", s.name, s.line, err)
	}
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	s.check(err)
	return n
}

// load adds a file to the rules and swaps them.
func (s *script) load(text string) {
	s.files = append(s.files, rule.File{Name: fmt.Sprintf("%s:%d.yaml", s.name, s.line), Data: []byte(text)})
	snapshot, warnings, err := rule.Load(s.files, rule.Options{MergeDomains: true})
	s.check(err)
	s.warned = fmt.Sprint(warnings)
	s.rules.Store(snapshot)
	if s.engine == nil {
		s.open()
	}
}

// open starts over with an empty store.
func (s *script) open() {
	s.now.Store(s.start.UnixNano())
	clock := func() time.Time { return time.Unix(0, s.now.Load()) }
	state, keys := s.backend.fresh(s.t, clock)
	s.keys = keys
	s.meter = prometheus.NewRegistry()
	var err error
	s.engine, err = engine.New(engine.Options{
		Snapshots: &s.rules, Store: state, Keyer: newKeyer(s.t), Shadow: s.shadow, Quota: s.quota, Now: clock, Registerer: s.meter,
		Hold: s.hold,
	})
	s.check(err)
}

// ask runs one line of the form [at D] [xN] REQUEST -> ANSWER.
func (s *script) ask(line string) {
	left, want, ok := strings.Cut(line, " -> ")
	if !ok {
		s.t.Fatalf("%s:%d: want REQUEST -> ANSWER", s.name, s.line)
	}
	times := 1
	if rest, ok := strings.CutPrefix(left, "at "); ok {
		at, rest, _ := strings.Cut(rest, " ")
		d, err := time.ParseDuration(at)
		s.check(err)
		s.now.Store(s.start.Add(d).UnixNano())
		left = rest
	}
	if m := regexp.MustCompile(`^x(\d+) `).FindStringSubmatch(left); m != nil {
		times = s.number(m[1])
		left = left[len(m[0]):]
	}
	for range times {
		if got, ok := s.answers(left, want); !ok {
			s.errorf("%s\n got %s\nwant %s", left, got, want)
		}
	}
}

func (s *script) decide(text string) (*engine.Verdict, error) {
	req, err := shorthand.ParseRequest(text)
	s.check(err)
	v := new(engine.Verdict)
	return v, s.engine.Decide(s.t.Context(), req, v)
}

// answers reports whether the answer is as wanted, and what it was.
func (s *script) answers(request, want string) (string, bool) {
	v, err := s.decide(request)
	if err != nil {
		return "error " + err.Error(), "error "+err.Error() == want
	}
	got := answer(v)
	head, rest, _ := strings.Cut(want, "{")
	list, tail, _ := strings.Cut(rest, "}")
	if strings.TrimSpace(head) != code(v.Over) {
		return got, false
	}
	if w := strings.Fields(tail); len(w) >= 2 && w[0] == "nearest" {
		if strconv.Itoa(v.Nearest) != w[1] {
			return got, false
		}
	}
	tail, reason, blocked := strings.Cut(tail, "because")
	if blocked != (v.Blocked != nil) || blocked && v.Blocked.Reason != strings.TrimSpace(reason) {
		return got, false
	}
	if strings.Contains(tail, "shadowed") != v.WouldDeny {
		return got, false
	}
	statuses := strings.Split(list, ",")
	if len(statuses) != len(v.Statuses) {
		return got, false
	}
	for i, text := range statuses {
		if !s.matches(strings.Fields(text), &v.Statuses[i]) {
			return got, false
		}
	}
	return got, true
}

// matches reports whether a status is as the words say.
func (s *script) matches(words []string, got *engine.Status) bool {
	ok := true
	arg := func(i int) string {
		if i+1 >= len(words) {
			s.t.Fatalf("%s:%d: want something after %q", s.name, s.line, words[i])
		}
		return words[i+1]
	}
	duration := func(i int) time.Duration {
		d, err := time.ParseDuration(arg(i))
		s.check(err)
		return d
	}
	for i := 0; i < len(words); i++ {
		switch w := words[i]; {
		case w == "none":
			ok = ok && !got.HasLimit && !got.Unlimited && !got.Over
		case w == "blocked":
			ok = ok && !got.HasLimit && !got.Unlimited && got.Over && got.RetryAfter < 0 && got.Remaining == 0
		case w == "unlimited":
			ok = ok && got.Unlimited && !got.HasLimit
		case w == "OK" || w == "OVER":
			ok = ok && (got.HasLimit || got.Unlimited) && code(got.Over) == w
		case w == "never":
			ok = ok && got.Over && got.RetryAfter < 0
		case w == "wait":
			ok = ok && got.Over && got.RetryAfter == duration(i)
			i++
		case w == "reset":
			ok = ok && got.Reset == duration(i)
			i++
		case w == "window":
			ok = ok && got.Window == duration(i)
			i++
		case w == "name":
			ok = ok && got.Name == arg(i)
			i++
		case w == "path":
			ok = ok && got.MetricPath() == arg(i)
			i++
		case w == "quota":
			ok = ok && strconv.FormatInt(got.Quota, 10) == arg(i)
			i++
		case w[0] == 'r':
			ok = ok && strconv.FormatUint(uint64(got.Remaining), 10) == w[1:]
		default:
			s.t.Fatalf("%s:%d: %q in a status", s.name, s.line, w)
		}
	}
	return ok
}

func code(over bool) string {
	if over {
		return "OVER"
	}
	return "OK"
}

// answer writes a verdict with all that a script may ask for.
func answer(v *engine.Verdict) string {
	var b strings.Builder
	for i := range v.Statuses {
		st := &v.Statuses[i]
		if i > 0 {
			b.WriteString(", ")
		}
		switch {
		case st.Unlimited:
			b.WriteString("unlimited")
		case !st.HasLimit:
			b.WriteString("none")
		default:
			fmt.Fprintf(&b, "%s r%d reset %v quota %d window %v path %s", code(st.Over), st.Remaining, st.Reset, st.Quota, st.Window, st.MetricPath())
		}
		if st.Over {
			fmt.Fprintf(&b, " wait %v", st.RetryAfter)
		}
		if st.Name != "" {
			fmt.Fprintf(&b, " name %s", st.Name)
		}
	}
	because := ""
	if v.Blocked != nil {
		because = " because " + v.Blocked.Reason
	}
	return fmt.Sprintf("%s {%s} nearest %d shadowed %v%s", code(v.Over), b.String(), v.Nearest, v.WouldDeny, because)
}

// every runs every D for D REQUEST -> A..B.
func (s *script) every(line string) {
	left, want, _ := strings.Cut(line, " -> ")
	words := strings.SplitN(left, " ", 4)
	if len(words) != 4 || words[1] != "for" {
		s.t.Fatalf("%s:%d: want every D for D REQUEST -> A..B", s.name, s.line)
	}
	step, err := time.ParseDuration(words[0])
	s.check(err)
	total, err := time.ParseDuration(words[2])
	s.check(err)
	low, high, _ := strings.Cut(want, "..")
	admitted := 0
	for d := time.Duration(0); d < total; d += step {
		s.now.Store(s.start.Add(d).UnixNano())
		v, err := s.decide(words[3])
		s.check(err)
		if !v.Over {
			admitted++
		}
	}
	if admitted < s.number(low) || admitted > s.number(high) {
		s.errorf("got %d admitted, want %s", admitted, want)
	}
}

// metric runs NAME{…} = N.
func (s *script) metric(line string) {
	name, want, _ := strings.Cut(line, " = ")
	got, ok := metrics(s.t, s.meter)[name]
	if !ok || got != want {
		s.errorf("got %s = %q, want %q", name, got, want)
	}
}

// metrics returns what a registry exports, by name and labels; of a histogram the number of observations.
func metrics(t *testing.T, g prometheus.Gatherer) map[string]string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := make([]string, 0, 4)
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if h := m.GetHistogram(); h != nil {
				value = float64(h.GetSampleCount())
			}
			out[name] = strconv.FormatFloat(value, 'f', -1, 64)
		}
	}
	return out
}

// hold stands in for the timer of a queue: it moves the clock.
func (s *script) hold(_ context.Context, d time.Duration) error {
	s.now.Add(int64(d))
	return nil
}
