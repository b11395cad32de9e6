package config

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// Values change apart from the rules: also while a rule file is wrong, and after a start from the state directory.
func TestValuesChangeWhileRulesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	values := map[string]string{}
	o := Options{StateDir: dir, Rules: rule.Options{ReadValues: func(name string) ([]byte, error) {
		if data, ok := values[name]; ok {
			return []byte(data), nil
		}
		return nil, fs.ErrNotExist
	}}}
	const rules = `domain: shop
lookups: [{from: key, to: tier, values_file: keys.csv}]
descriptors: [{key: tier, rate_limit: {unit: hour, requests_per_unit: %s}}]
`
	update := func(requests string) Update {
		return Update{Origin: "files", Files: []rule.File{{Name: "rules.yaml", Data: fmt.Appendf(nil, rules, requests)}}}
	}
	tier := func(s *rule.Snapshot) string {
		t.Helper()
		es, _ := s.Lookups(s.Domain("shop")).Derive(nil, []rule.Entry{{Key: "key", Value: "k-1"}})
		return es[0].Value
	}
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name, requests, values, tier string
		ok                           bool
		version                      int64
	}{
		{"a good start", "1", "k-1,gold\n", "gold", true, 1},
		{"bad rules, the same values", "one", "k-1,gold\n", "gold", false, 1},
		{"bad rules, new values", "one", "k-1,silver\n", "silver", false, 2},
		{"bad rules, bad values", "one", "k-1\n", "silver", false, 2},
		{"bad rules, no values", "one", "", "silver", false, 2},
		{"good rules, bad values", "2", "k-1\n", "silver", false, 2},
		{"bad rules, new values again", "one", "k-1,bronze\n", "bronze", false, 3},
	}
	for _, s := range steps {
		if values["keys.csv"] = s.values; s.values == "" {
			delete(values, "keys.csv")
		}
		err := l.Apply(update(s.requests))
		st := l.Status()
		if (err == nil) != s.ok || st.LastOK != s.ok || st.Version != s.version || st.Hash != l.Current().Hash() {
			t.Errorf("%s: got error %v and status %+v, want ok %v, version %d, hash %s", s.name, err, st, s.ok, s.version, l.Current().Hash())
		}
		if got := tier(l.Current()); got != s.tier {
			t.Errorf("%s: got tier %q, want %q", s.name, got, s.tier)
		}
	}
	again, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Begin(update("one")); err != nil {
		t.Fatal(err)
	}
	if got := tier(again.Current()); got != "bronze" || again.Current().Hash() != l.Current().Hash() {
		t.Errorf("after a start from the state directory: got tier %q and hash %s, want bronze and %s", got, again.Current().Hash(), l.Current().Hash())
	}
}
