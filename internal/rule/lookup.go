package rule

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
