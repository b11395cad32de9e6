package rule

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxValuesBytes = 16 << 20  // of a values_file
	maxValues      = 1_000_000 // in it
)

// valuesFiles reads the files that hold the values of lookups, each once a Load.
type valuesFiles struct {
	open  func(name string) ([]byte, error)
	files map[string]*valuesFile
}

// valuesFile is one of them, as it was read.
type valuesFile struct {
	sum    [32]byte
	values map[string]string
}

// read returns the name and the values of the file that a lookup names, and reports what is wrong with it. The values are nil then.
func (f *valuesFiles) read(p *problems, at place, path string) (name string, values map[string]string) {
	switch {
	case f.open == nil:
		p.invalid(at, "rules that come from no file have no values_file: want values")
		return "", nil
	case path == "":
		p.invalid(at, "is empty: want a path, relative to that of this file")
		return "", nil
	}
	name = path
	if !filepath.IsAbs(path) {
		name = filepath.Join(filepath.Dir(at.file), path)
	}
	if have := f.files[name]; have != nil {
		return name, have.values
	}
	data, err := f.open(name)
	if err != nil {
		p.invalid(at, "%s", cut(err.Error(), 256))
		return name, nil
	}
	parsed := parseValues(File{name, data}, p)
	f.files[name] = parsed
	return name, parsed.values
}

// parseValues reads a values_file: comma-separated values (RFC 4180), a value and what is derived from it in a line; one that begins with # is skipped.
// Its messages quote nothing of it: values are often keys.
func parseValues(f File, p *problems) *valuesFile {
	out := &valuesFile{sum: sum(f.Data)}
	at := place{file: f.Name, mark: mark{1, 1}}
	if len(f.Data) > maxValuesBytes {
		p.invalid(at, "file of %d bytes: want at most %d", len(f.Data), maxValuesBytes)
		return out
	}
	data := bytes.TrimPrefix(f.Data, []byte("\ufeff"))
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord, r.Comment, r.ReuseRecord = 2, '#', true
	values := make(map[string]string, bytes.Count(data, []byte("\n"))+1)
	same := map[string]string{} // one copy of each derived text: there are few
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			out.values = values
			return out
		}
		if err != nil {
			if again := badLine(err, at, p); !again {
				return out
			}
			continue
		}
		at.line, at.col = r.FieldPos(0)
		_, twice := values[record[0]]
		switch {
		case twice:
			p.invalid(at, "the value is given twice")
		case record[1] == "":
			at.line, at.col = r.FieldPos(1)
			p.invalid(at, "want what is derived from the value")
		case len(values) == maxValues:
			p.invalid(at, "more than %d values", maxValues)
			return out
		default:
			derived, ok := same[record[1]]
			if !ok {
				derived = strings.Clone(record[1])
				same[derived] = derived
			}
			values[strings.Clone(record[0])] = derived
		}
	}
}

// badLine reports a line that is not CSV, or not of two fields: after the latter reading goes on.
func badLine(err error, at place, p *problems) (again bool) {
	pe, ok := errors.AsType[*csv.ParseError](err)
	if !ok {
		p.invalid(at, "%s", short(err.Error()))
		return false
	}
	at.mark = mark{pe.Line, max(pe.Column, 1)}
	if again = errors.Is(err, csv.ErrFieldCount); again {
		p.invalid(at, "want two fields in a line, a value and what is derived from it")
	} else {
		p.invalid(at, "%s", pe.Err.Error())
	}
	return again
}

// ValuesFiles returns the names of the files that hold the values of lookups, as Options.ReadValues was given them, in order.
func (s *Snapshot) ValuesFiles() []string {
	var names []string
	for name := range s.values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// WithValues returns the snapshot with the values of these files in place of what they held before: its domains and rules are the same ones, not compiled
// again, and s is not changed. Files of other names than those of ValuesFiles are not looked at. What is wrong with one gives no Snapshot and an error of
// type Errors.
func (s *Snapshot) WithValues(files []File) (*Snapshot, error) {
	p := &problems{}
	read := maps.Clone(s.values)
	for _, f := range files {
		if read[f.Name] != nil {
			read[f.Name] = parseValues(f, p)
		}
	}
	if len(p.errs) > 0 {
		p.sort()
		return nil, p.errs
	}
	next := *s
	next.values, next.hash = read, hashWith(s.rulesHash, read)
	next.lookups = make(map[*Domain]Lookups, len(s.lookups))
	for d, ls := range s.lookups {
		next.lookups[d] = ls.with(read)
	}
	return &next, nil
}

// with returns the lookups with the values that their files hold now.
func (ls Lookups) with(files map[string]*valuesFile) Lookups {
	ls = slices.Clone(ls)
	for i := range ls {
		if f := files[ls[i].file]; f != nil {
			ls[i].values = f.values
		}
	}
	return ls
}
