package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// The reference's files, in both of its watch modes: which are read, and by what names.
func TestReferenceLayout(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{
		"ratelimit/config/basic.yaml", "ratelimit/config/README", "ratelimit/config/deep/er/x.json",
		"ratelimit/config/.hidden", "ratelimit/config/..v1/basic.yaml", "ratelimit/other/y.yaml", "ratelimit/config.z", "elsewhere.yaml",
	} {
		write(t, filepath.Join(root, name), name)
	}
	symlink(t, "..v1", filepath.Join(root, "ratelimit/config/..data"))
	symlink(t, filepath.Join(root, "elsewhere.yaml"), filepath.Join(root, "ratelimit/config/link.yaml"))
	tests := []struct {
		name   string
		change func(*ReferenceLayout)
		want   []string
	}{
		{"watching the root", func(l *ReferenceLayout) { l.WatchRoot, l.IgnoreDotFiles = true, true },
			[]string{"config.z", "config.README", "config.basic.yaml", "config.deep.er.x.json", "config.link.yaml"}},
		{"watching the directory", func(l *ReferenceLayout) { l.IgnoreDotFiles = true },
			[]string{"README", "basic.yaml", "deep.er.x.json", "link.yaml"}},
		{"with dot files", func(*ReferenceLayout) {},
			[]string{"..v1.basic.yaml", ".hidden", "README", "basic.yaml", "deep.er.x.json", "link.yaml"}},
		{"another directory", func(l *ReferenceLayout) { l.AppDirectory = "other" }, []string{"y.yaml"}},
		{"no subdirectory", func(l *ReferenceLayout) { l.WatchRoot, l.Subdirectory = true, "" }, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := ReferenceLayout{Root: root, Subdirectory: "ratelimit", AppDirectory: "config"}
			test.change(&l)
			files, err := l.read()
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range files {
				names = append(names, f.Name)
				if f.Name == "basic.yaml" && string(f.Data) != "ratelimit/config/basic.yaml" {
					t.Errorf("%s: got %q", f.Name, f.Data)
				}
			}
			if diff := cmp.Diff(sorted(test.want), sorted(names)); diff != "" {
				t.Errorf("wrong names (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := (ReferenceLayout{Root: root, Subdirectory: "gone"}).read(); !os.IsNotExist(err) {
		t.Errorf("missing directory: got %v", err)
	}
}

// A stray file makes the whole load fail, as in the reference; and so does a Kubernetes volume with dot files.
func TestReferenceLayoutReadsEverything(t *testing.T) {
	t.Parallel()
	dir := volume(t)
	l := ReferenceLayout{Root: dir}
	w := newFixture(t, Options{Rules: rule.Options{DefaultProfile: rule.Envoy}})
	err := w.Begin(NewReferenceFiles(l, FilesOptions{}).Update())
	if err == nil || !strings.Contains(err.Error(), "duplicate domain 'shop' in config file; first at ..v1.rules.yaml") {
		t.Errorf("dot files: got %v, want a duplicate domain", err)
	}
	l.IgnoreDotFiles = true
	if err := w.Begin(NewReferenceFiles(l, FilesOptions{}).Update()); err != nil {
		t.Errorf("without dot files: %v", err)
	}
	write(t, filepath.Join(dir, "README.md"), "just text")
	err = w.Begin(NewReferenceFiles(l, FilesOptions{}).Update())
	if err == nil || !strings.Contains(err.Error(), "README.md:1:1: ") {
		t.Errorf("stray file: got %v, want an error that names it", err)
	}
}

// The root is a link to a version; replacing it is one reload, in either watch mode.
func TestReferenceRootSwap(t *testing.T) {
	t.Parallel()
	for _, watchRoot := range []bool{true, false} {
		t.Run(fmt.Sprintf("watch root %t", watchRoot), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			current := filepath.Join(dir, "current")
			for n := range 3 {
				write(t, filepath.Join(dir, fmt.Sprint(n), "ratelimit", "config", "rules.yaml"), fmt.Sprintf(good, n))
			}
			symlink(t, "1", current)
			l := ReferenceLayout{Root: current, Subdirectory: "ratelimit", AppDirectory: "config", WatchRoot: watchRoot}
			w := follow(t, NewReferenceFiles(l, FilesOptions{Poll: time.Hour}), Options{})
			w.becomes(1, 1)
			symlink(t, "2", current+".new")
			if err := os.Rename(current+".new", current); err != nil {
				t.Fatal(err)
			}
			w.becomes(2, 2)
			// The directory that it leads to now is watched.
			replace(t, filepath.Join(dir, "2", "ratelimit", "config", "rules.yaml"), fmt.Sprintf(good, 3))
			w.becomes(3, 3)
			// So is one below it that is new.
			write(t, filepath.Join(dir, "2", "ratelimit", "config", "deep", "more.yaml"), strings.Replace(fmt.Sprintf(good, 4), "shop", "more", 1))
			eventually(t, "a file in a new directory", func() bool { return w.Current().Domain("more") != nil })
		})
	}
}
