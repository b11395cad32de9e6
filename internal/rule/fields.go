package rule

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// fieldInfo is what the decoder knows of a key, from the schema's tags.
type fieldInfo struct {
	index       int
	least, most uint32 // of a count
	unsupported bool
}

// mappings are the schema's mappings, and where each stands in a file.
var mappings = []struct {
	t     reflect.Type
	where string
}{
	{reflect.TypeFor[fileSpec](), "the top of the file"},
	{reflect.TypeFor[defaultsSpec](), "defaults"},
	{reflect.TypeFor[descriptorSpec](), "a descriptor"},
	{reflect.TypeFor[blockSpec](), "blocklist"},
	{reflect.TypeFor[lookupSpec](), "lookups"},
	{reflect.TypeFor[normalizeSpec](), "normalize"},
	{reflect.TypeFor[limitSpec](), "rate_limit"},
	{reflect.TypeFor[replacesSpec](), "replaces"},
}

// fields are the keys of each of the mappings.
var fields = func() map[reflect.Type]map[string]fieldInfo {
	all := map[reflect.Type]map[string]fieldInfo{}
	for _, m := range mappings {
		all[m.t] = map[string]fieldInfo{}
		for i := range m.t.NumField() {
			f := m.t.Field(i)
			if key := f.Tag.Get("json"); key != "" {
				all[m.t][key] = fieldInfo{
					index:       i,
					least:       tagNumber(f.Tag, "minimum", 0),
					most:        tagNumber(f.Tag, "maximum", math.MaxUint32),
					unsupported: f.Type == reflect.TypeFor[unsupported](),
				}
			}
		}
	}
	return all
}()

func tagNumber(tag reflect.StructTag, name string, absent uint32) uint32 {
	for part := range strings.SplitSeq(tag.Get("jsonschema"), ",") {
		if s, ok := strings.CutPrefix(part, name+"="); ok {
			if v, err := strconv.ParseUint(s, 10, 32); err == nil {
				return uint32(v)
			}
			panic("rule: tag " + part + " of the schema is not a number") // a mistake in schema.go, seen at start
		}
	}
	return absent
}

// homesOf names the mappings that have the key, "" if none has, and says whether this version supports it there.
func homesOf(key string) (homes string, supported bool) {
	var names []string
	for _, m := range mappings {
		if f, ok := fields[m.t][key]; ok {
			names = append(names, m.where)
			supported = supported || !f.unsupported
		}
	}
	return strings.Join(names, " or "), supported
}

// suggestion names the key of the mapping that was probably meant, if there is one.
func suggestion(key string, t reflect.Type) string {
	best, least := "", 3
	for _, k := range slices.Sorted(maps.Keys(fields[t])) {
		if n := distance(key, k); !fields[t][k].unsupported && n < least && n < len(k)/2+1 {
			best, least = k, n
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean '" + best + "'?"
}

// distance is the number of letters to insert, drop or change between two words (Levenshtein's distance), at most 3.
func distance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], 3)
}
