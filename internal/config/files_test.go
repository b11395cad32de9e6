package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// patience bounds every wait for something real; long, since a loaded machine is no failure.
const patience = 20 * time.Second

// eventually waits until something real has happened.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// watched is a fixture that follows files until its test ends.
type watched struct {
	*fixture
	files    *Files
	delivers atomic.Int64
}

func (w *watched) Run(ctx context.Context, deliver func(Update)) error {
	return w.files.Run(ctx, func(u Update) {
		w.delivers.Add(1) // before its effect can be seen
		deliver(u)
	})
}

// follow follows files that are there already, as a process does: reads them, and then watches.
func follow(t *testing.T, f *Files, o Options) *watched {
	t.Helper()
	w := &watched{fixture: newFixture(t, o), files: f}
	f.log = w.Live.log
	if err := w.Begin(f.Update()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Live.Run(ctx, w); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return w
}

// becomes waits for a limit of n, and checks that it came as the given version, by as many deliveries.
func (w *watched) becomes(n uint32, version int64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("a limit of %d", n), func() bool { return requests(w.Current()) == n && w.Status().LastOK })
	w.want(n, version, true)
}

// refuses waits until n versions have been refused, or more: on a loaded machine a file may be read while it is written.
func (w *watched) refuses(n int64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d refused versions", n), func() bool { return w.Status().Failures >= n })
}

// replace puts a version of the rules at path, in its place at once.
func replace(t *testing.T, path, content string) {
	t.Helper()
	write(t, path+".tmp", content)
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// swap makes the ..data of a Kubernetes volume lead to another directory, as the kubelet does.
func swap(t *testing.T, dir, target string) {
	t.Helper()
	symlink(t, target, filepath.Join(dir, "..data_tmp"))
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// volume makes a directory as Kubernetes shows a ConfigMap of two files, one domain each.
func volume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	fill(t, dir, 1)
	swap(t, dir, "..v1")
	for _, name := range []string{"rules.yaml", "other.yaml"} {
		symlink(t, filepath.Join("..data", name), filepath.Join(dir, name))
	}
	return dir
}

// fill writes version n of a volume's files.
func fill(t *testing.T, dir string, n int) {
	t.Helper()
	content := fmt.Sprintf(good, n)
	write(t, filepath.Join(dir, fmt.Sprintf("..v%d", n), "rules.yaml"), content)
	write(t, filepath.Join(dir, fmt.Sprintf("..v%d", n), "other.yaml"), strings.Replace(content, "shop", "other", 1))
}

// C48: the swap of ..data is one reload, within two seconds; what else the kubelet does is none.
func TestSwapC48(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]func(dir string) *Files{
		"directory": func(dir string) *Files { return NewFiles(dir, FilesOptions{Poll: time.Hour}) },
		"one file": func(dir string) *Files {
			return NewFiles(filepath.Join(dir, "rules.yaml"), FilesOptions{Poll: time.Hour})
		},
		"reference's layout": func(dir string) *Files {
			return NewReferenceFiles(ReferenceLayout{Root: filepath.Dir(dir), Subdirectory: filepath.Base(dir), IgnoreDotFiles: true},
				FilesOptions{Poll: time.Hour})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := volume(t)
			w := follow(t, source(dir), Options{})
			w.becomes(1, 1)
			for n := 2; n <= 4; n++ {
				fill(t, dir, n)
				swapped := time.Now()
				swap(t, dir, fmt.Sprintf("..v%d", n))
				w.becomes(uint32(n), int64(n))
				if d := time.Since(swapped); d > 2*time.Second {
					t.Errorf("version %d was current after %v, want at most 2s", n, d)
				}
				if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..v%d", n-1))); err != nil {
					t.Fatal(err)
				}
			}
			// The last removal has been looked at once a later change is current.
			fill(t, dir, 5)
			swap(t, dir, "..v5")
			w.becomes(5, 5)
			if got := w.delivers.Load(); got != 4 {
				t.Errorf("got %d reloads, want 4, one a swap", got)
			}
			if st := w.Status(); st.Failures != 0 {
				t.Errorf("%d versions were refused, the last with %q", st.Failures, st.Error)
			}
		})
	}
}

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

// A set that is replaced again and again is only ever seen whole: both domains have the same number.
func TestFilesAreNeverTorn(t *testing.T) {
	t.Parallel()
	dir := volume(t)
	w := follow(t, NewFiles(dir, FilesOptions{Poll: time.Millisecond}), Options{})
	torn := func() bool {
		s := w.Current()
		other := s.Domain("other").Match([]rule.Entry{{Key: "api", Value: "x"}})
		return other == nil || other.Limits[0].Requests != requests(s)
	}
	const last = 300
	for n := 2; n <= last; n++ {
		fill(t, dir, n)
		swap(t, dir, fmt.Sprintf("..v%d", n))
		if torn() {
			t.Fatal("the two files of one set are of two versions")
		}
	}
	eventually(t, "the last version", func() bool { return requests(w.Current()) == last })
	if torn() {
		t.Fatal("the two files of one set are of two versions")
	}
}
