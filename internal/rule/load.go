package rule

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

var errNoZone = errors.New("no IANA time zone")

// Profile says whose answers a file wants. The zero value is Native.
type Profile uint8

// The profiles.
const (
	Native Profile = iota
	Envoy          // those of envoyproxy/ratelimit
)

// String returns "native" or "envoy".
func (p Profile) String() string { return profileNames[p] }

// File is one rule file.
type File struct {
	Name string // in messages; files are read in the order of their names
	Data []byte // YAML or JSON, at most Options.MaxFileBytes
}

// Options are what the files do not say themselves. The zero value is usable.
type Options struct {
	DefaultProfile Profile // of files that name none
	MergeDomains   bool    // in profile envoy: whether several files may add to one domain. In profile native they always may
	MaxFileBytes   int     // a longer file is refused unread; 0: 1 MiB, which is more than people write

	// ReadValues reads the values_file of a lookup. Its name is as written if that is absolute, else joined with the directory of the rule file's name. It is called
	// once a name and Load. nil: values_file is a mistake, as for rules that come from no file.
	ReadValues func(name string) ([]byte, error)
}

// Load reads files and compiles them. It changes nothing and keeps nothing of the files: it decodes strictly, fills in the defaults, validates, and
// only then compiles. A mistake anywhere gives no Snapshot and an error of type Errors that lists them all. Warnings are in the order of the files; with an
// error they are only those met on the way to it. No files make an empty snapshot.
func Load(files []File, o Options) (*Snapshot, []Warning, error) {
	files = slices.SortedStableFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	p := &problems{}
	var specs []*fileSpec
	for _, f := range files {
		if s := decode(f, o, p); s != nil {
			specs = append(specs, s)
		}
	}
	domains := gather(specs, o, p)
	values := &valuesFiles{o.ReadValues, map[string]*valuesFile{}}
	for _, d := range domains {
		d.applyDefaults()
		d.validate(p, values)
	}
	if len(p.errs) > 0 {
		p.sort()
		return nil, p.warnings, p.errs
	}
	for _, d := range domains {
		d.lint(p)
	}
	p.sort()
	s := &Snapshot{byName: make(map[string]*Domain, len(domains)), rulesHash: hash(files), values: values.files, lookups: map[*Domain]Lookups{}}
	s.hash = hashWith(s.rulesHash, values.files)
	slices.SortFunc(domains, func(a, b *domainSpec) int { return strings.Compare(a.name, b.name) })
	for _, spec := range domains {
		d := s.compile(spec)
		s.domains = append(s.domains, d)
		s.byName[d.Name] = d
	}
	return s, p.warnings, nil
}

// hashWith is the hash of rules, and of the values files they have.
func hashWith(rules string, values map[string]*valuesFile) string {
	if len(values) == 0 {
		return rules
	}
	h := sha256.New()
	_, _ = io.WriteString(h, rules) // a hash never errs
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(h, "%d:%s", len(name), name)
		_, _ = h.Write(values[name].sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func sum(data []byte) [sha256.Size]byte { return sha256.Sum256(data) }

func hash(files []File) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%d:%s%d:", len(f.Name), f.Name, len(f.Data))
		h.Write(f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}
