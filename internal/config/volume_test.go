package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

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
