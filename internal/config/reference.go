package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// ReferenceLayout is where the reference service (envoyproxy/ratelimit) looks for its files, by its own words.
type ReferenceLayout struct {
	Root           string // RUNTIME_ROOT
	Subdirectory   string // RUNTIME_SUBDIRECTORY
	AppDirectory   string // RUNTIME_APPDIRECTORY
	WatchRoot      bool   // RUNTIME_WATCH_ROOT
	IgnoreDotFiles bool   // RUNTIME_IGNOREDOTFILES
}

// directory returns what is read, with everything below it.
func (l ReferenceLayout) directory() string {
	if l.WatchRoot {
		return filepath.Join(l.Root, l.Subdirectory)
	}
	return filepath.Join(l.Root, l.Subdirectory, l.AppDirectory)
}

// NewReferenceFiles returns the rules in the reference's layout. Every file is one, whatever its name; their names are
// those of the reference's messages, the path below the directory with dots for slashes. With WatchRoot, files whose name
// does not begin with the AppDirectory and a dot are not read, and without a Subdirectory there are none.
func NewReferenceFiles(l ReferenceLayout, o FilesOptions) *Files {
	return newFiles("files "+l.directory(), o, l.read, l.places)
}

func (l ReferenceLayout) read() ([]rule.File, error) {
	if l.WatchRoot && l.Subdirectory == "" {
		return nil, nil
	}
	var files []rule.File
	err := l.walk(func(path string, e fs.DirEntry) error {
		name := strings.ReplaceAll(path, "/", ".")
		if e.IsDir() || l.WatchRoot && !strings.HasPrefix(name, l.AppDirectory+".") {
			return nil
		}
		path = filepath.Join(l.directory(), path)
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.IsDir() { // a link to it, as in a Kubernetes volume, whose files are there already
			return nil
		}
		data, err := ReadFile(path)
		files = append(files, rule.File{Name: name, Data: data})
		return err
	})
	return files, err
}

// places returns the directories that are read, and the root, which may be a link that is replaced.
func (l ReferenceLayout) places() places {
	p := places{names: []string{filepath.Clean(l.Root), l.directory()}}
	_ = l.walk(func(path string, e fs.DirEntry) error { // what is wrong with it, reading says
		if e.IsDir() {
			p.inside = append(p.inside, filepath.Join(l.directory(), path))
		}
		return nil
	})
	return p
}

// walk visits the directory and everything below it, in name order. It follows no links to directories.
func (l ReferenceLayout) walk(visit func(path string, e fs.DirEntry) error) error {
	return fs.WalkDir(os.DirFS(l.directory()), ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				e.Path = filepath.Join(l.directory(), path) // from the root of everything
			}
			return err
		case l.IgnoreDotFiles && path != "." && strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return visit(path, e)
	})
}
