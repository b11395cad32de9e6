package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A process begins with what an earlier one left, where it finds nothing better.
func TestStateSurvives(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	f := newFixture(t, Options{StateDir: dir})
	if err := f.Restore(); !errors.Is(err, errNoState) {
		t.Errorf("restore without state: got %v, want %v", err, errNoState)
	}
	if err := f.Begin(update(bad)); err == nil {
		t.Error("a bad first version, without state: got no error")
	}
	f.apply(version(1))
	f.apply(version(2))
	f.want(2, 2, true)
	hash := f.Current().Hash()
	if f.Apply(update(bad)) == nil { // which is not kept
		t.Error("a bad version: got no error")
	}

	// A bad first version: the last good one is there, and everybody is told.
	f = newFixture(t, Options{StateDir: dir})
	if err := f.Begin(update(bad)); err != nil {
		t.Fatal(err)
	}
	f.want(2, 2, false)
	<-f.Ready()
	st := f.Status()
	if !st.Restored || st.Origin != "test" || st.OriginVersion != "v2" || st.Hash != hash || st.Failures != 1 {
		t.Errorf("status after a bad start: got %+v", st)
	}
	if !strings.Contains(f.log.String(), "rules.yaml:4:24") {
		t.Errorf("the log does not say what was wrong:\n%s", f.log.String())
	}
	// The origin has the same again: it is the same version.
	f.apply(version(2))
	f.want(2, 2, true)
	if f.Status().Restored {
		t.Error("still said to be restored")
	}
	f.apply(version(3))
	f.want(3, 3, true)

	// No version at all yet, as before a control plane answers.
	f = newFixture(t, Options{StateDir: dir})
	if err := f.Restore(); err != nil {
		t.Fatal(err)
	}
	if got := requests(f.Current()); got != 3 {
		t.Errorf("restored limit: got %d, want 3", got)
	}
	if len(f.changes) != 0 {
		t.Errorf("a restored version was told as a change: %v", f.changes)
	}

	// A good first version: numbers go on.
	f = newFixture(t, Options{StateDir: dir})
	if err := f.Begin(version(4)); err != nil {
		t.Fatal(err)
	}
	f.want(4, 4, true)
}

func TestStateIsWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFixture(t, Options{StateDir: dir})
	f.apply(version(1))
	before, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		t.Fatal(err)
	}
	// What a process that was killed had begun is passed over, and overwritten.
	write(t, filepath.Join(dir, stateFile+".new"), string(before[:len(before)/2]))
	f = newFixture(t, Options{StateDir: dir})
	if err := f.Restore(); err != nil {
		t.Fatal(err)
	}
	f.apply(version(2))
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{stateFile}, names); diff != "" {
		t.Errorf("wrong files (-want +got):\n%s", diff)
	}

	// A file that someone else has written is as good as none, and said.
	write(t, filepath.Join(dir, stateFile), "{")
	f = newFixture(t, Options{StateDir: dir})
	if err := f.Restore(); !errors.Is(err, errNoState) {
		t.Errorf("restore of a spoiled file: got %v, want %v", err, errNoState)
	}
	if !strings.Contains(f.log.String(), "cannot be used") {
		t.Errorf("the log does not say that the file is spoiled:\n%s", f.log.String())
	}
}

func TestStateDirMustBeUsable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "")
	if _, err := New(Options{StateDir: path}); err == nil || !strings.Contains(err.Error(), "--state-dir: ") {
		t.Errorf("got %v, want an error that names --state-dir", err)
	}
}

// Values that the rules take from files are kept with them, as they were.
func TestStateKeepsValues(t *testing.T) {
	t.Parallel()
	const lookup = "domain: shop\nlookups: [{from: key, to: tier, values_file: tiers.csv}]\ndescriptors:\n" +
		"  - key: tier\n    value: gold\n    rate_limit: {unit: hour, requests_per_unit: 9}\n"
	dir, content := t.TempDir(), "k1,gold\n"
	o := Options{StateDir: dir}
	o.Rules.ReadValues = func(string) ([]byte, error) { return []byte(content), nil }
	first := newFixture(t, o)
	first.apply(update(lookup))
	hash := first.Current().Hash()

	content = "what, is, this"
	f := newFixture(t, o)
	if err := f.Begin(update(lookup)); err != nil {
		t.Fatal(err)
	}
	if f.Status().LastOK || !strings.Contains(f.Status().Error, "tiers.csv:1:") {
		t.Errorf("a bad file of values: got status %+v", f.Status())
	}
	if got := f.Current().Hash(); got != hash {
		t.Errorf("rules with the values of the earlier process: got hash %s, want %s", got, hash)
	}
}
