package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// However files come to be others, that is one reload, and a bad state on the way there changes nothing.
func TestFilesFollow(t *testing.T) {
	t.Parallel()
	remove := func(t *testing.T, path string) {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name  string
		steps func(t *testing.T, w *watched, dir, file string)
	}{
		{"rename over", func(t *testing.T, w *watched, _, file string) {
			replace(t, file, fmt.Sprintf(good, 2))
			w.becomes(2, 2)
		}},
		{"write in place", func(t *testing.T, w *watched, _, file string) {
			write(t, file, fmt.Sprintf(good, 2))
			w.becomes(2, 2)
		}},
		{"write in pieces", func(t *testing.T, w *watched, _, file string) {
			f, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(fmt.Sprintf(good, 2)) {
				if _, err := f.WriteString(line); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			w.becomes(2, 2)
		}},
		{"half a file, then the other half", func(t *testing.T, w *watched, _, file string) {
			write(t, file, fmt.Sprintf(good, 2)[:60])
			w.refuses(1)
			w.want(1, 1, false)
			write(t, file, fmt.Sprintf(good, 2))
			w.becomes(2, 2)
		}},
		{"an editor's backup and save", func(t *testing.T, w *watched, _, file string) {
			if err := os.Rename(file, file+"~"); err != nil {
				t.Fatal(err)
			}
			write(t, file, fmt.Sprintf(good, 2))
			w.becomes(2, 2)
		}},
		{"bad, then as it was", func(t *testing.T, w *watched, _, file string) {
			replace(t, file, bad)
			w.refuses(1)
			w.want(1, 1, false)
			replace(t, file, fmt.Sprintf(good, 1))
			w.becomes(1, 1)
		}},
		{"file gone and back", func(t *testing.T, w *watched, _, file string) {
			remove(t, file)
			w.refuses(1)
			w.want(1, 1, false)
			write(t, file, fmt.Sprintf(good, 2))
			w.becomes(2, 2)
		}},
		{"directory gone and back", func(t *testing.T, w *watched, dir, file string) {
			remove(t, dir)
			w.refuses(1)
			w.want(1, 1, false)
			write(t, file, fmt.Sprintf(good, 2))
			w.becomes(2, 2)
			replace(t, file, fmt.Sprintf(good, 3)) // the new directory is watched as well
			w.becomes(3, 3)
		}},
		{"directory replaced by another", func(t *testing.T, w *watched, dir, file string) {
			write(t, filepath.Join(dir+".new", "rules.yaml"), fmt.Sprintf(good, 2))
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(dir+".new", dir); err != nil {
				t.Fatal(err)
			}
			w.becomes(2, 2)
			replace(t, file, fmt.Sprintf(good, 3))
			w.becomes(3, 3)
		}},
		{"emptied", func(t *testing.T, w *watched, _, file string) {
			write(t, file, "")
			w.refuses(1)
			w.want(1, 1, false)
		}},
		{"touched", func(t *testing.T, w *watched, _, file string) {
			if err := os.Chtimes(file, time.Time{}, time.Now()); err != nil {
				t.Fatal(err)
			}
			replace(t, file, fmt.Sprintf(good, 2))
			w.becomes(2, 2)
		}},
	}
	for _, test := range tests {
		for _, single := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/single file %t", test.name, single), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "rules")
				file := filepath.Join(dir, "rules.yaml")
				write(t, file, fmt.Sprintf(good, 1))
				path, poll := dir, time.Hour
				if single {
					path = file
					if strings.HasPrefix(test.name, "directory") {
						poll = 20 * time.Millisecond // nobody watches the directory above that of a file
					}
				}
				w := follow(t, NewFiles(path, FilesOptions{Poll: poll}), Options{})
				test.steps(t, w, dir, file)
			})
		}
	}
}

func TestFilesOfDirectoryFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), fmt.Sprintf(good, 1))
	w := follow(t, NewFiles(dir, FilesOptions{Poll: time.Hour}), Options{})
	write(t, filepath.Join(dir, ".rules.yaml.swp"), "not yaml: [")
	write(t, filepath.Join(dir, "README.md"), "not yaml: [")
	write(t, filepath.Join(dir, "other.yaml"), strings.Replace(fmt.Sprintf(good, 1), "shop", "other", 1))
	eventually(t, "a second domain", func() bool { return w.Current().Domain("other") != nil })
	w.want(1, 2, true)
	if err := os.Remove(filepath.Join(dir, "other.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one domain", func() bool { return w.Current().Domain("other") == nil })
	w.want(1, 3, true)
	if got := w.delivers.Load(); got != 2 {
		t.Errorf("got %d reloads, want 2", got)
	}
}

// Where the system tells of nothing, a poll sees the change; and each content is delivered once.
func TestFilesPoll(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "rules.yaml") // where nobody watches
	write(t, elsewhere, fmt.Sprintf(good, 1))
	dir := t.TempDir()
	symlink(t, elsewhere, filepath.Join(dir, "rules.yaml"))
	w := follow(t, NewFiles(dir, FilesOptions{Poll: 10 * time.Millisecond}), Options{})
	replace(t, elsewhere, fmt.Sprintf(good, 2))
	w.becomes(2, 2)
	replace(t, elsewhere, bad)
	w.refuses(1)
	replace(t, elsewhere, fmt.Sprintf(good, 3))
	w.becomes(3, 3)
	if got := w.delivers.Load(); got != 3 {
		t.Errorf("got %d reloads, want 3", got)
	}
}

// A nudge, as by SIGHUP, says again what is wrong, and follows files that nobody watches.
func TestFilesNudge(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, elsewhere, fmt.Sprintf(good, 1))
	dir := t.TempDir()
	symlink(t, elsewhere, filepath.Join(dir, "rules.yaml"))
	w := follow(t, NewFiles(dir, FilesOptions{Poll: time.Hour}), Options{})
	eventually(t, "the first look", func() bool { w.files.Nudge(); return w.delivers.Load() > 0 })
	replace(t, elsewhere, bad)
	w.files.Nudge()
	w.refuses(1)
	w.files.Nudge()
	w.refuses(2)
	replace(t, elsewhere, fmt.Sprintf(good, 2))
	w.files.Nudge()
	w.becomes(2, 2)
}

// Files of values that the rules name are followed as the rules are.
func TestFilesOfValuesFollow(t *testing.T) {
	t.Parallel()
	dir, values := t.TempDir(), filepath.Join(t.TempDir(), "values.csv")
	write(t, filepath.Join(dir, "rules.yaml"), fmt.Sprintf(good, 1))
	write(t, values, "one")
	f := NewFiles(dir, FilesOptions{Poll: 10 * time.Millisecond})
	var read []string
	deliver := func(Update) {
		data, err := f.ReadValues(values)
		if err != nil {
			t.Error(err)
		}
		read = append(read, string(data))
	}
	deliver(f.Update())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	delivered := make(chan struct{}, 10)
	running.Go(func() {
		if err := f.Run(ctx, func(u Update) { deliver(u); delivered <- struct{}{} }); err != nil {
			t.Error(err)
		}
	})
	replace(t, values, "two")
	<-delivered
	replace(t, values, "three")
	<-delivered
	cancel()
	running.Wait()
	if got := strings.Join(read, " "); got != "one two three" {
		t.Errorf("values read: got %q, want %q", got, "one two three")
	}
}
