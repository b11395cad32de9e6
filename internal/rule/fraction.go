package rule

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// fraction is a number of more than 0 and at most 1, in decimal digits.
type fraction struct {
	given
	s string // as written
}

var fractions = regexp.MustCompile(`^[01](\.[0-9]+)?$`)

func (f *fraction) read(n *yaml.Node, _ Profile) string {
	const want = "want a number of more than 0 and at most 1, such as 0.25"
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" {
		return mismatch(n, "float64", want)
	}
	if v, err := strconv.ParseFloat(n.Value, 64); err != nil || !fractions.MatchString(n.Value) || v <= 0 || v > 1 {
		return say(n, want)
	}
	f.s = n.Value
	return ""
}

// millionths returns the fraction, exact if it has no more digits than that; 0 if it was not given.
func (f *fraction) millionths() (m int64, exact bool) {
	whole, part, _ := strings.Cut(f.s, ".")
	part = strings.TrimRight(part, "0")
	if len(part) > 6 {
		return 0, false
	}
	m, _ = strconv.ParseInt("0"+whole+part+"000000"[len(part):], 10, 64) // digits, at most eight
	return m, true
}

// scopeName says where a limit's buckets live.
type scopeName struct {
	given
	node bool
}

var scopeNames = []string{"shared", "node"}

func (t *scopeName) read(n *yaml.Node, _ Profile) (problem string) {
	i, problem := oneOf(n, scopeNames)
	t.node = i == 1
	return problem
}
