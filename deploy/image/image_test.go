package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// maxSize is what a node pulls at most.
const maxSize = 25 << 20

// built is the image of this machine's architecture, built anew.
func built(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ratelimitd.tar")
	o := options{source: filepath.Join("..", ".."), out: path, platform: "linux/" + runtime.GOARCH, version: "1.2.3"}
	if err := build(o, io.Discard); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestImage(t *testing.T) {
	t.Parallel()
	path := built(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(built(t))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := sha256.Sum256(again), sha256.Sum256(data); got != want {
		t.Errorf("built twice: got %x and %x, want the same bytes", want, got)
	}
	if len(data) > maxSize {
		t.Errorf("got %d bytes, want %d at most", len(data), maxSize)
	}

	image, err := tarball.ImageFromPath(path, nil) // as docker load reads it
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	unpack(t, bytes.NewReader(data), dir)
	index, err := layout.ImageIndexFromPath(dir) // as everything else does
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}

	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/bin/ratelimit"}) || len(c.Cmd) > 0 {
		t.Errorf("got user %q, entry point %q and command %q", c.User, c.Entrypoint, c.Cmd)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("got %s/%s", config.OS, config.Architecture)
	}

	root := t.TempDir()
	files := unpack(t, mutate.Extract(image), root)
	slices.Sort(files)
	want := []string{
		"bin", "bin/ratelimit", "bin/ratelimitd",
		"etc", "etc/group", "etc/passwd", "etc/ssl", "etc/ssl/certs", "etc/ssl/certs/ca-certificates.crt",
	}
	if !slices.Equal(files, want) {
		t.Errorf("got files %q, want %q: no shell, nothing else", files, want)
	}
	pem, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(pem) || bytes.Count(pem, []byte("BEGIN CERTIFICATE")) < 100 {
		t.Errorf("got %d authorities, want those that Mozilla trusts", bytes.Count(pem, []byte("BEGIN CERTIFICATE")))
	}
	runs(t, root)
}

// runs tries the program of an image, under both of its names.
func runs(t *testing.T, root string) {
	t.Helper()
	out, err := exec.Command(filepath.Join(root, "bin/ratelimitd"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "ratelimitd 1.2.3 ") {
		t.Errorf("ratelimitd version: got %q, %v", out, err)
	}
	// Under the reference's name it takes no argument for one, and its settings from the environment.
	cmd := exec.Command(filepath.Join(root, "bin/ratelimit"), "version")
	cmd.Env = []string{"CONFIG_TYPE=nonsense"}
	out, err = cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), `CONFIG_TYPE: "nonsense"`) {
		t.Errorf("ratelimit version: got %q, %v, want a complaint of CONFIG_TYPE", out, err)
	}
}

// unpack writes the files of a tar below a folder and returns their names.
func unpack(t *testing.T, from io.Reader, dir string) []string {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var names []string
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Uid != 0 || !h.ModTime.Equal(epoch) {
			t.Errorf("%s: got owner %d and time %v, want 0 and %v", h.Name, h.Uid, h.ModTime, epoch)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(filepath.Clean(h.Name), h.FileInfo().Mode().Perm())
		case tar.TypeSymlink:
			err = root.Symlink(h.Linkname, h.Name)
		default:
			if err = root.MkdirAll(filepath.Dir(h.Name), 0o755); err == nil {
				err = root.WriteFile(h.Name, data, h.FileInfo().Mode().Perm())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	for _, platform := range []string{"", "linux", "linux/amd64/v1/x"} {
		if err := build(options{platform: platform}, io.Discard); err == nil || !strings.Contains(err.Error(), "-platform") {
			t.Errorf("platform %q: got %v, want an error", platform, err)
		}
	}
}
