package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// stateFile holds the last good rules, in a state directory.
const stateFile = "rules.json"

// errNoState says that no earlier process left its rules.
var errNoState = errors.New("no rules are kept of an earlier start")

// state keeps the last good rules on disk. A nil *state keeps nothing.
type state struct {
	dir   string
	saved *savedRules // nil: none
}

// savedRules is what a state file holds: a good version, with its number.
type savedRules struct {
	Origin        string      `json:"origin"`
	OriginVersion string      `json:"origin_version,omitempty"`
	Version       int64       `json:"version"`
	Hash          string      `json:"hash"`
	Files         []rule.File `json:"files"`
	Values        valueFiles  `json:"values,omitempty"`
}

// valueFiles are the files of values that a version's rules name, as they were read with it.
type valueFiles []rule.File

// keep returns a function that reads as read does, and keeps what it gave.
func (v *valueFiles) keep(read func(string) ([]byte, error)) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		data, err := read(name)
		if err == nil {
			*v = append(*v, rule.File{Name: name, Data: data})
		}
		return data, err
	}
}

// read returns what was kept.
func (v valueFiles) read(name string) ([]byte, error) {
	for _, f := range v {
		if f.Name == name {
			return f.Data, nil
		}
	}
	return nil, fs.ErrNotExist
}

// openState reads what an earlier process left in dir, which is made if it is not there. The error is of a directory
// that is not to be had; a file that is not understood is as good as none, and unusable says why.
func openState(dir string) (s *state, unusable, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	s = &state{dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil, nil
	case err != nil:
		return nil, nil, err
	}
	var saved savedRules
	if err := json.Unmarshal(data, &saved); err != nil {
		return s, fmt.Errorf("parse %s: %w", filepath.Join(dir, stateFile), err), nil
	}
	s.saved = &saved
	return s, nil, nil
}

func (r *savedRules) update() Update {
	return Update{Origin: r.Origin, Version: r.OriginVersion, Files: r.Files}
}

// next returns the number of the version with this hash that comes after another: that of an earlier process goes on,
// and keeps its number if it is the same.
func (s *state) next(last int64, hash string) int64 {
	if last == 0 && s != nil && s.saved != nil {
		if s.saved.Hash == hash {
			return s.saved.Version
		}
		last = s.saved.Version
	}
	return last + 1
}

// save keeps a version, whole or not at all: a new file takes the old one's place once it is on disk.
func (s *state) save(u Update, values valueFiles, number int64, hash string) error {
	if s == nil || s.saved != nil && s.saved.Hash == hash && s.saved.Version == number {
		return nil
	}
	r := &savedRules{Origin: u.Origin, OriginVersion: u.Version, Version: number, Hash: hash, Files: u.Files, Values: values}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := ReplaceFile(filepath.Join(s.dir, stateFile), data); err != nil {
		return err
	}
	s.saved = r
	return nil
}

// ReplaceFile writes a file beside the one at path, and puts it in its place; both are on disk when it returns. One
// process writes there.
func ReplaceFile(path string, data []byte) error {
	fresh := path + ".new"
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
