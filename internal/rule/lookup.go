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

// lookup derives one entry of a descriptor from another.
type lookup struct {
	from, to   string
	values     map[string]string
	byDefault  string
	hasDefault bool
	file       string // that the values are from, "" if they stand in the rules
}

// of returns what is derived from a value, ok if anything is.
func (l *lookup) of(value string) (derived string, ok bool) {
	if derived, ok = l.values[value]; ok {
		return derived, true
	}
	return l.byDefault, l.hasDefault
}

// Lookups are those of one domain. The zero value derives nothing. Immutable.
type Lookups []lookup

// Lookups returns the lookups of a domain of the snapshot.
func (s *Snapshot) Lookups(d *Domain) Lookups { return s.lookups[d] }

// Derive returns a descriptor's entries as they are matched: with those that the lookups derive, one lookup after the other in the
// order of the files, so that a later one may start from what an earlier one derived. A derived entry stands before its source, which
// is the first entry of its key, and takes the place of all entries that have its own key. Where nothing is derived, nothing changes.
//
// It appends what it needs to scratch, which it returns for the next call, and does not allocate unless that grows. derived is entries itself,
// or a part of scratch, and holds as long as what scratch was made of.
func (ls Lookups) Derive(scratch, entries []Entry) (derived, rest []Entry) {
	start := len(scratch)
	derived = entries
	for i := range ls {
		l := &ls[i]
		at := indexOf(derived, l.from)
		if at < 0 {
			continue
		}
		value, ok := l.of(derived[at].Value)
		if !ok {
			continue
		}
		if len(scratch) == start {
			scratch = append(scratch, entries...)
		}
		scratch = put(scratch, start, l.from, Entry{l.to, value})
		derived = scratch[start:len(scratch):len(scratch)]
	}
	return derived, scratch
}

func indexOf(entries []Entry, key string) int {
	for i := range entries {
		if entries[i].Key == key {
			return i
		}
	}
	return -1
}

// put writes e before the first entry of key from, which is there, and takes out what has e's key. The entries are those of list from start.
func put(list []Entry, start int, from string, e Entry) []Entry {
	kept := list[:start]
	for _, x := range list[start:] {
		if x.Key != e.Key {
			kept = append(kept, x)
		}
	}
	at := start + indexOf(kept[start:], from)
	kept = append(kept, Entry{})
	copy(kept[at+1:], kept[at:])
	kept[at] = e
	return kept
}

// lookup checks one lookup.
func (v *validator) lookup(l *lookupSpec, values *valuesFiles) {
	if l.From.s == "" && !l.From.bad {
		v.wrong(l.at.field("from", l.From.at), "lookup has empty from")
	}
	if l.To.s == "" && !l.To.bad {
		v.wrong(l.at.field("to", l.To.at), "lookup has empty to")
	}
	if l.From.s == l.To.s && l.From.s != "" {
		v.invalid(l.at.field("to", l.To.at), "the key it derives from itself: want another, since a derived entry takes the place of those of its key")
	}
	if l.Default.present() && !l.Default.bad && l.Default.s == "" {
		v.invalid(l.at.field("default", l.Default.at), "is empty: want text, or no default")
	}
	at := l.at.field("values_file", l.ValuesFile.at)
	switch {
	case l.Values.bad || l.ValuesFile.bad:
	case l.Values.present() && l.ValuesFile.present():
		v.invalid(at, "want values or values_file, not both")
	case l.ValuesFile.present():
		l.file, l.table = values.read(v.problems, at, l.ValuesFile.s)
	case l.Values.present():
		l.table = l.Values.values
	case !l.Default.present():
		v.invalid(l.at, "derives nothing: want values, values_file or default")
	}
}

// lookups checks the lookups of a domain.
func (v *validator) lookups(all []*lookupSpec, values *valuesFiles) {
	type pair struct{ from, to string }
	seen := map[pair]*lookupSpec{}
	for _, l := range all {
		v.lookup(l, values)
		if l.From.s == "" || l.To.s == "" {
			continue
		}
		p := pair{l.From.s, l.To.s}
		if first := seen[p]; first != nil {
			v.invalid(l.at, "'%s' is derived from '%s' twice, first at %s", short(l.To.s), short(l.From.s), first.at.position())
			continue
		}
		seen[p] = l
	}
}

// lookup compiles the lookups of a domain.
func (s *Snapshot) lookup(d *Domain, specs []*lookupSpec) {
	for _, l := range specs {
		s.lookups[d] = append(s.lookups[d], lookup{
			from: l.From.s, to: l.To.s, values: l.table, byDefault: l.Default.s, hasDefault: l.Default.present(), file: l.file,
		})
	}
}

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
