package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeArchive writes the image as an OCI layout in one tar file, with the index that docker load reads beside that of
// OCI. The same image and name give the same bytes.
func writeArchive(path string, image v1.Image, name, tag string) error {
	dir, err := os.MkdirTemp("", "ratelimitd-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := at.AppendImage(image, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag,
		"io.containerd.image.name":          name + ":" + tag,
	})); err != nil {
		return err
	}
	manifest, err := dockerManifest(image, name+":"+tag)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), manifest, 0o644); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := pack(&b, os.DirFS(dir)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// dockerManifest is the index of docker save, which names the same blobs.
func dockerManifest(image v1.Image, ref string) ([]byte, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	var entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	entry.Config, entry.RepoTags = blob(manifest.Config.Digest), []string{ref}
	for _, l := range manifest.Layers {
		entry.Layers = append(entry.Layers, blob(l.Digest))
	}
	return json.Marshal([]any{entry})
}

// pack writes the files of a tree in name order, whoever owns them and whenever they were written.
func pack(to io.Writer, tree fs.FS) error {
	w := tar.NewWriter(to)
	err := fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{
			Name: name, Size: int64(len(data)), Mode: 0o644, ModTime: epoch, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
