package shorthand

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// FormatAnswer writes a verdict: OVER {OK r9, OVER r0, none}, or OVER {none, blocked} if the blocklist refuses it.
func FormatAnswer(v *engine.Verdict) string {
	var b strings.Builder
	b.WriteString(code(v.Over))
	b.WriteString(" {")
	for i := range v.Statuses {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(formatStatus(&v.Statuses[i]))
	}
	b.WriteString("}")
	return b.String()
}

func formatStatus(s *engine.Status) string {
	switch {
	case s.HasLimit || s.Unlimited:
	case s.Over:
		return "blocked"
	default:
		return "none"
	}
	return code(s.Over) + " r" + strconv.FormatUint(uint64(s.Remaining), 10)
}

func code(over bool) string {
	if over {
		return "OVER"
	}
	return "OK"
}

// Answer is what somebody expects of a verdict; what it leaves out may be anything. The zero value expects OK, whatever
// the statuses.
type Answer struct {
	over     bool
	some     bool // statuses are given
	statuses []status
}

// status is what is expected of one descriptor.
type status struct {
	none         bool
	blocked      bool
	code         string // "OK", "OVER", or "" for either
	hasRemaining bool
	remaining    uint32
}

// ParseAnswer reads an expectation: the overall code alone (OVER), or with a status for every descriptor, each of which
// may leave out its code (r9) or what remains (OK), or is none or blocked.
func ParseAnswer(s string) (Answer, error) {
	a, err := parseAnswer(s)
	if err != nil {
		return Answer{}, fmt.Errorf("answer %q: %w", s, err)
	}
	return a, nil
}

func parseAnswer(s string) (Answer, error) {
	var a Answer
	overall, list, some := strings.Cut(strings.TrimSpace(s), "{")
	switch strings.TrimSpace(overall) {
	case "OK":
	case "OVER":
		a.over = true
	default:
		return a, errors.New("want OK or OVER first")
	}
	if !some {
		return a, nil
	}
	a.some = true
	list, ok := strings.CutSuffix(list, "}")
	if !ok {
		return a, errors.New("want } at the end")
	}
	for part := range strings.SplitSeq(list, ",") {
		st, err := parseStatus(strings.Fields(part))
		if err != nil {
			return a, fmt.Errorf("status %q: %w", strings.TrimSpace(part), err)
		}
		a.statuses = append(a.statuses, st)
	}
	return a, nil
}

func parseStatus(words []string) (status, error) {
	var st status
	if len(words) == 1 && words[0] == "none" {
		return status{none: true}, nil
	}
	if len(words) == 1 && words[0] == "blocked" {
		return status{blocked: true}, nil
	}
	if len(words) > 0 && (words[0] == "OK" || words[0] == "OVER") {
		st.code, words = words[0], words[1:]
	}
	if len(words) == 1 && strings.HasPrefix(words[0], "r") {
		n, err := strconv.ParseUint(words[0][1:], 10, 32)
		if err != nil {
			return st, errors.New("want r and a number of 0…4294967295")
		}
		st.hasRemaining, st.remaining, words = true, uint32(n), nil
	}
	if len(words) > 0 || st == (status{}) {
		return st, errors.New("want OK or OVER, rN, both, or none, or blocked")
	}
	return st, nil
}

// Matches reports whether v is what was expected.
func (a Answer) Matches(v *engine.Verdict) bool {
	if a.over != v.Over {
		return false
	}
	if !a.some {
		return true
	}
	if len(a.statuses) != len(v.Statuses) {
		return false
	}
	for i, want := range a.statuses {
		got := &v.Statuses[i]
		bare := !got.HasLimit && !got.Unlimited
		switch {
		case (want.none || want.blocked) != bare, bare && want.blocked != got.Over:
			return false
		case want.code != "" && want.code != code(got.Over):
			return false
		case want.hasRemaining && want.remaining != got.Remaining:
			return false
		}
	}
	return true
}
