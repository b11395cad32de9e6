package rule

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write what the tests get to the files that say what they want")

// files reads a rule file, or a directory of them.
func files(t testing.TB, path string) []File {
	t.Helper()
	paths := []string{path}
	if info, err := os.Stat(path); err != nil {
		t.Fatal(err)
	} else if info.IsDir() {
		if paths, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil || len(paths) == 0 {
			t.Fatalf("%s: no rule files: %v", path, err)
		}
	}
	fs := make([]File, len(paths))
	for i, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		fs[i] = File{filepath.Base(p), data}
	}
	return fs
}

// cases lists the rule files and directories of them in testdata.
func cases(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("testdata", dir))
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, e := range entries {
		if e.IsDir() || strings.HasSuffix(e.Name(), ".yaml") {
			paths = append(paths, filepath.Join("testdata", dir, e.Name()))
		}
	}
	if len(paths) == 0 {
		t.Fatalf("testdata/%s is empty", dir)
	}
	return paths
}

// golden compares what was got with the .want file beside a case, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	want := strings.TrimSuffix(path, ".yaml") + ".want"
	if *rewrite {
		if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(b), got); diff != "" {
		t.Errorf("%s (-want +got; -rewrite takes what was got):\n%s", path, diff)
	}
}

func TestEachMistakeHasItsMessage(t *testing.T) {
	t.Parallel()
	for _, path := range cases(t, "bad") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			s, _, err := Load(files(t, path), Options{})
			if err == nil || s != nil {
				t.Fatalf("got snapshot %v and error %v, want an error alone", s, err)
			}
			golden(t, path, err.Error()+"\n")
		})
	}
}

func TestLintWarnings(t *testing.T) {
	t.Parallel()
	for _, path := range cases(t, "lint") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			_, warnings, err := Load(files(t, path), Options{})
			if err != nil {
				t.Fatalf("got\n%v\nwant warnings only", err)
			}
			var b strings.Builder
			for _, w := range warnings {
				b.WriteString(w.String() + "\n")
			}
			golden(t, path, b.String())
		})
	}
}
