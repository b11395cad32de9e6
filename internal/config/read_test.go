package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// write makes a file, and the directories above it.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestReadDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{
		"b.yaml", "a.yml", "c.json", // read, in name order
		".hidden.yaml", "README.md", "old.yaml~", "sub/d.yaml", "e.yaml/f.yaml", // not
	} {
		write(t, filepath.Join(dir, name), name)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var want []rule.File
	for _, name := range []string{"a.yml", "b.yaml", "c.json"} {
		want = append(want, rule.File{Name: filepath.Join(dir, name), Data: []byte(name)})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong files (-want +got):\n%s", diff)
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules")
	write(t, path, "domain: shop")
	got, err := Read(path)
	if diff := cmp.Diff([]rule.File{{Name: path, Data: []byte("domain: shop")}}, got); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
}

// A Kubernetes volume shows each file once, as a link through ..data.
func TestReadKubernetesVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..2026_01_01", "rules.yaml"), "v1")
	for link, target := range map[string]string{
		"..data": "..2026_01_01", "rules.yaml": filepath.Join("..data", "rules.yaml"),
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(dir)
	want := []rule.File{{Name: filepath.Join(dir, "rules.yaml"), Data: []byte("v1")}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	write(t, filepath.Join(empty, "README.md"), "no rules here")
	dangling := filepath.Join(dir, "dangling")
	write(t, filepath.Join(dangling, "a.yaml"), "domain: shop")
	if err := os.Symlink("nowhere", filepath.Join(dangling, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "large.yaml")
	write(t, large, strings.Repeat("#", maxBytes+1))
	pipes := filepath.Join(dir, "pipes")
	write(t, filepath.Join(pipes, "a.yaml"), "domain: shop")
	mkfifo(t, filepath.Join(pipes, "b.yaml"))
	device := filepath.Join(dir, "device.yaml")
	symlink(t, os.DevNull, device)
	socket := filepath.Join(dir, "socket.yaml")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	tests := []struct {
		name, path string
		want       error  // matched, if set
		text       string // contained
	}{
		{"missing", filepath.Join(dir, "missing"), fs.ErrNotExist, "missing"},
		{"empty directory", empty, errNoFiles, empty},
		{"dangling link", dangling, fs.ErrNotExist, "b.yaml"},
		{"too large", large, nil, "larger than 16777216 bytes"},
		{"pipe", pipes, errNotRegular, "b.yaml: not a regular file"},
		{"device behind a link", device, errNotRegular, "device.yaml: not a regular file"},
		{"socket", socket, errNotRegular, "socket.yaml: not a regular file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(test.path)
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want an error with %q", err, test.text)
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v in it", err, test.want)
			}
		})
	}
}

// A pipe that nobody writes to holds up neither the rules nor the end; it is said, and the rest goes on once it is gone.
func TestFilesFollowPastAPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules := filepath.Join(dir, "a.yaml")
	write(t, rules, fmt.Sprintf(good, 1))
	w := follow(t, NewFiles(dir, FilesOptions{}), Options{})
	pipe := filepath.Join(dir, "c.yaml")
	mkfifo(t, pipe)
	w.refuses(1)
	if st := w.Status(); requests(w.Current()) != 1 || !strings.HasSuffix(st.Error, "c.yaml: not a regular file") {
		t.Errorf("with a pipe: got a limit of %d and error %q, want 1 and that it is no regular file", requests(w.Current()), st.Error)
	}
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	replace(t, rules, fmt.Sprintf(good, 2))
	eventually(t, "a limit of 2", func() bool { return requests(w.Current()) == 2 && w.Status().LastOK })
	failures := w.Status().Failures
	mkfifo(t, pipe)
	w.refuses(failures + 1) // and follow's cleanup wants Run to end, with the pipe there
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	sets := [][]rule.File{
		nil,
		{{Name: "a"}},
		{{Name: "a"}, {Name: "b"}},
		{{Name: "ab"}},
		{{Name: "a", Data: []byte("b")}},
		{{Name: "a", Data: []byte("bc")}},
		{{Name: "ab", Data: []byte("c")}},
	}
	seen := map[[32]byte]int{}
	for i, files := range sets {
		d := digest(files, nil)
		if j, ok := seen[d]; ok {
			t.Errorf("sets %d and %d have one digest", i, j)
		}
		seen[d] = i
		if d != digest(files, nil) {
			t.Errorf("set %d has two digests", i)
		}
	}
}
