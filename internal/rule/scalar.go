package rule

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// given is where a scalar stands. The zero value was not given.
type given struct {
	at  mark
	bad bool // given, but not understood: reported already
}

func (g *given) stand(at mark) { g.at = at }
func (g *given) spoil()        { g.bad = true }

// present reports whether the scalar was given, understood or not.
func (g *given) present() bool { return g.at != mark{} }

// scalar is a value that is not a mapping or a list of the schema. read takes the node's value, or says what is wrong with it.
type scalar interface {
	stand(mark)
	spoil()
	read(n *yaml.Node, p Profile) (problem string)
}

// text is any scalar, as written.
type text struct {
	given
	s string
}

func (t *text) read(n *yaml.Node, _ Profile) string {
	if n.Kind != yaml.ScalarNode {
		return mismatch(n, "string", "want text")
	}
	t.s = n.Value
	return ""
}

// valueText is a descriptor's value: a text, where nothing after the colon is a mistake (save for profile envoy).
type valueText struct{ text }

func (t *valueText) read(n *yaml.Node, p Profile) string {
	if isNull(n) {
		if p == Envoy {
			t.given = given{}
			return ""
		}
		return `null would match any value: leave value out if that is meant, or write the text in quotes, as in "null"`
	}
	return t.text.read(n, p)
}

// count is a whole number of 0 to 2^32−1, in decimal digits; its tag may narrow that.
type count struct {
	given
	n uint32
}

var decimal = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

func (c *count) read(n *yaml.Node, _ Profile) string {
	const want = "want a whole number from 0 to 4294967295"
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float":
		return mismatch(n, "uint32", want)
	case n.ShortTag() == "!!float" && !isDigits(n.Value):
		return "error checking config: " + n.Value + ": " + want
	case strings.HasPrefix(n.Value, "-"):
		return mismatch(n, "uint32", want)
	case !decimal.MatchString(n.Value):
		return n.Value + ": want decimal digits alone, since YAML readers disagree on this spelling"
	}
	v, err := strconv.ParseUint(n.Value, 10, 64)
	if err != nil || v > math.MaxUint32 {
		return mismatch(n, "uint32", want)
	}
	c.n = uint32(v)
	return ""
}

// toggle is a boolean, in any of YAML 1.1's plain words, which the reference's files may use.
type toggle struct {
	given
	on bool
}

func (f *toggle) read(n *yaml.Node, _ Profile) string {
	on, ok := boolean(n)
	if !ok {
		return mismatch(n, "bool", "want true or false")
	}
	f.on = on
	return ""
}

// duration is a Go duration, without a sign. What is too long for one is the longest there is.
type duration struct {
	given
	d time.Duration
	s string // as written
}

const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

var durations = regexp.MustCompile(durationPattern)

func (d *duration) read(n *yaml.Node, _ Profile) string {
	const want = `want a duration like "500ms" or "2s"`
	if n.Kind != yaml.ScalarNode || !durations.MatchString(n.Value) {
		return say(n, want)
	}
	d.s = n.Value
	var err error
	if d.d, err = time.ParseDuration(n.Value); err != nil {
		d.d = math.MaxInt64
	}
	return ""
}

// limitName is a name that goes into headers. The reference takes any text.
type limitName struct{ text }

const limitNamePattern = `^([a-z0-9][a-z0-9._-]{0,63})?$`

var limitNames = regexp.MustCompile(limitNamePattern)

func (t *limitName) read(n *yaml.Node, p Profile) string {
	if problem := t.text.read(n, p); problem != "" {
		return problem
	}
	if p != Envoy && !limitNames.MatchString(t.s) {
		return say(n, "want 1 to 64 of a-z 0-9 . _ - beginning with a letter or digit, since it goes into headers")
	}
	return ""
}

// unitName is a unit as written. It is judged with the rest of its limit, since an unlimited one needs none.
type unitName struct {
	text
	unit bucket.Unit // NoUnit if there is none of that name
}

func (t *unitName) read(n *yaml.Node, p Profile) string {
	if problem := t.text.read(n, p); problem != "" {
		return problem
	}
	t.unit, _ = bucket.ParseUnit(t.s)
	return ""
}

type algorithmName struct {
	given
	a bucket.Algorithm
}

var algorithmNames = namesUpTo(bucket.SlidingLog)

func (t *algorithmName) read(n *yaml.Node, _ Profile) (problem string) {
	i, problem := oneOf(n, algorithmNames)
	t.a = bucket.Algorithm(i)
	return problem
}

type failureMode struct {
	given
	m bucket.FailureMode
}

var failureModeNames = namesUpTo(bucket.FailClosed)

func (t *failureMode) read(n *yaml.Node, _ Profile) (problem string) {
	i, problem := oneOf(n, failureModeNames)
	t.m = bucket.FailureMode(i)
	return problem
}

type profileName struct {
	given
	p Profile
}

var profileNames = []string{"native", "envoy"}

func (t *profileName) read(n *yaml.Node, _ Profile) (problem string) {
	i, problem := oneOf(n, profileNames)
	t.p = Profile(i)
	return problem
}

// namesUpTo lists the names of the values from 0 to last.
func namesUpTo[T interface {
	~uint8
	String() string
}](last T) (names []string) {
	for v := T(0); v <= last; v++ {
		names = append(names, v.String())
	}
	return names
}

// oneOf returns the index of the node's text among the names.
func oneOf(n *yaml.Node, names []string) (int, string) {
	if n.Kind == yaml.ScalarNode {
		if i := slices.Index(names, n.Value); i >= 0 {
			return i, ""
		}
	}
	return 0, say(n, "want one of "+strings.Join(names, ", "))
}

// unsupported is a key of a later version: never ignored.
type unsupported struct{ given }

func (*unsupported) read(*yaml.Node, Profile) string {
	panic("rule: the decoder reads no unsupported key")
}

// isNull reports whether nothing was written, or YAML's null.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// boolean returns the value of a plain YAML 1.1 boolean.
func boolean(n *yaml.Node) (on, ok bool) {
	if n.Kind != yaml.ScalarNode || n.Style&^yaml.TaggedStyle != 0 {
		return false, false
	}
	switch n.Value {
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

// mismatch is the reference's text for a value of the wrong type, and what was wanted.
func mismatch(n *yaml.Node, goType, want string) string {
	s := "error loading config file: yaml: unmarshal errors: line " + strconv.Itoa(n.Line) + ": cannot unmarshal " + n.ShortTag()
	if n.Kind == yaml.ScalarNode {
		s += " `" + short(n.Value) + "`"
	}
	return s + " into " + goType + ": " + want
}

// say quotes the node's value, if it is one line of text, before what was wanted.
func say(n *yaml.Node, want string) string {
	if n.Kind != yaml.ScalarNode {
		return want
	}
	return `"` + short(n.Value) + `": ` + want
}

// short makes a text fit for a message: a line of printable characters, not too long.
func short(s string) string { return cut(s, 64) }

func cut(s string, most int) string {
	ending := ""
	if len(s) > most {
		s, ending = strings.ToValidUTF8(s[:most], ""), "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		s = strings.Trim(strconv.Quote(s), `"`)
	}
	return s + ending
}
