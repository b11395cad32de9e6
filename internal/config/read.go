package config

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// maxBytes bounds one file, so that a wrong mount cannot exhaust memory. Rules that large are refused
// anyway, with a smaller bound that belongs to package rule.
const maxBytes = 16 << 20

// errNoFiles says that a set of rules is empty, which is a mistake more often than a wish.
var errNoFiles = errors.New("no rules: want at least one file named *.yaml, *.yml or *.json")

// errNotRegular refuses a pipe, a socket, a device or a directory.
var errNotRegular = errors.New("not a regular file")

// Read returns the files of a rule set in name order: the file at path, whatever its name; or those of the directory
// at path that are named *.yaml, *.yml or *.json and do not begin with a dot. Directories inside it are not entered.
// Names are as given: path, or path joined with the file's name. The error lists everything that could not be read; a
// directory without rules is one.
func Read(path string) ([]rule.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	names := []string{path}
	if info.IsDir() {
		if names, err = list(path); err != nil {
			return nil, err
		}
	}
	files := make([]rule.File, 0, len(names))
	var errs []error
	for _, name := range names {
		data, err := ReadFile(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files = append(files, rule.File{Name: name, Data: data})
	}
	return files, errors.Join(errs...)
}

// list returns the rule files of a directory in name order. Links are followed, since a Kubernetes volume shows its
// files as links; a link that leads nowhere is an error, since it may be a rule that is missing.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	var errs []error
	for _, e := range entries {
		if !isRules(e.Name()) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		info, err := os.Stat(name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !info.IsDir():
			names = append(names, name)
		}
	}
	if len(names) == 0 && len(errs) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, errNoFiles)
	}
	return names, errors.Join(errs...)
}

func isRules(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// ReadFile returns the bytes of a file of rules, or of a file of values that they name; one that is too large is an error,
// and so is what is no regular file: a pipe, a socket or a device could have its reader wait for ever.
func ReadFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", name, errNotRegular)
	}
	// Another file may have taken its place by now, so opening waits for nobody and the open file is asked again.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", name, errNotRegular)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, maxBytes)
	}
	return data, nil
}

// digest identifies what reading a set of files gave, so that an unchanged set is not delivered again.
func digest(files []rule.File, err error) [sha256.Size]byte {
	h := sha256.New()
	part := func(b []byte) {
		// Each part goes in behind its length: two sets never run together.
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	for _, f := range files {
		part([]byte(f.Name))
		part(f.Data)
	}
	if err != nil {
		part([]byte(err.Error()))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// sumOf identifies what reading one file gave.
func sumOf(data []byte, err error) [sha256.Size]byte {
	return digest([]rule.File{{Data: data}}, err)
}
