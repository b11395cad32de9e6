package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// epoch is the time of everything in the image: the same source gives the same bytes whenever it is built.
var epoch = time.Unix(0, 0).UTC()

// user is who the program runs as: nobody in particular, in numbers, so that Kubernetes can tell that it is not root.
const user = "65532"

// newImage returns the image of a program: it, the authorities it trusts, and the user it runs as. There is no shell.
func newImage(program []byte, platform v1.Platform, version string) (v1.Image, error) {
	ground, err := layerOf(
		file{name: "etc/"},
		file{name: "etc/passwd", data: []byte("nonroot:x:" + user + ":" + user + ":nonroot:/:/\n")},
		file{name: "etc/group", data: []byte("nonroot:x:" + user + ":\n")},
		file{name: "etc/ssl/"},
		file{name: "etc/ssl/certs/"},
		file{name: "etc/ssl/certs/ca-certificates.crt", data: authorities()},
	)
	if err != nil {
		return nil, err
	}
	programs, err := layerOf(
		file{name: "bin/"},
		file{name: "bin/ratelimitd", data: program, mode: 0o755},
		file{name: "bin/ratelimit", link: "ratelimitd"}, // it behaves as it is called
	)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: ground, History: v1.History{Created: v1.Time{Time: epoch}, Comment: "authorities and user"}},
		mutate.Addendum{Layer: programs, History: v1.History{Created: v1.Time{Time: epoch}, Comment: "ratelimitd"}},
	)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: epoch}
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Config = v1.Config{
		Entrypoint:   []string{"/bin/ratelimit"}, // as the reference service's image, which this one may stand in for
		User:         user + ":" + user,
		WorkingDir:   "/",
		Env:          []string{"PATH=/bin"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}},
		StopSignal:   "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "ratelimitd",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source":   "https://github.com/ratelimitd/ratelimitd",
		},
	}
	return mutate.ConfigFile(image, config)
}

// authorities are those that Mozilla trusts, at the version that go.mod pins: the same on every machine that builds.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // trusted for some certificates only, which a file of PEM cannot say
		}
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
	}
	return b.Bytes()
}

// A file is one entry of a layer: a directory if its name ends with a slash.
type file struct {
	name string
	data []byte
	mode int64  // 0: 0644, or 0755 of a directory
	link string // what a link points to
}

// layerOf makes a layer of files that root owns.
func layerOf(files ...file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Size: int64(len(f.data)), Mode: cmp.Or(f.mode, 0o644), ModTime: epoch, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		switch {
		case f.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		case f.name[len(f.name)-1] == '/':
			h.Typeflag, h.Mode = tar.TypeDir, cmp.Or(f.mode, 0o755)
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("layer: %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("layer: %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}
