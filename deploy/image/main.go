// Command image builds the container image of ratelimitd without a container engine: it links the program, and lays it
// with what it needs into a file that docker, podman, skopeo and crane read.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// options are what a build is of.
type options struct {
	source   string // the folder of the main module
	out      string // the file to write
	platform string // os/architecture
	version  string
}

func main() {
	var o options
	flag.StringVar(&o.source, "source", "..", "the `folder` of the module to build from")
	flag.StringVar(&o.out, "o", "dist/ratelimitd.tar", "the `file` to write")
	flag.StringVar(&o.platform, "platform", "linux/amd64", "`os/architecture` to build for")
	flag.StringVar(&o.version, "version", "devel", "the image's tag, and what the program says its `version` is")
	flag.Parse()
	if err := build(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// build writes the image, and prints its digest and its size.
func build(o options, say io.Writer) error {
	platform, err := v1.ParsePlatform(o.platform)
	if err != nil || platform.OS == "" || platform.Architecture == "" {
		return fmt.Errorf("-platform: %q: want os/architecture", o.platform)
	}
	program, err := link(o, *platform)
	if err != nil {
		return err
	}
	image, err := newImage(program, *platform, o.version)
	if err != nil {
		return err
	}
	if err := writeArchive(o.out, image, "ratelimitd", o.version); err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	info, err := os.Stat(o.out)
	if err != nil {
		return err
	}
	fmt.Fprintf(say, "%s: ratelimitd:%s for %s, %.1f MiB, %s\n", o.out, o.version, platform, float64(info.Size())/(1<<20), digest)
	return nil
}

// link builds the program. Nothing of this machine, its folders or the time gets into it.
func link(o options, platform v1.Platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "ratelimitd-link-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "ratelimitd")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -buildid= -X main.version="+o.version, "-o", out, "./cmd/ratelimitd")
	cmd.Dir = o.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w", err)
	}
	return os.ReadFile(out)
}
