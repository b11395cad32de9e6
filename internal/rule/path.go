package rule

import "strings"

// level is one level of a rule's configured path.
type level struct {
	key, value string      // as written; no value: ""
	match      *valueMatch // nil: by value
	share      bool        // share_threshold
	toMetric   bool        // value_to_metric
	withKey    bool        // whether requests of one rule can differ in this level's key too
	prefixes   prefixes
}

// name is the level's name in a path: key or key_value.
func (l *level) name() string { return nodeName(l.key, l.value, l.match) }

// nodeName is a node's name in a path: its key, then its value or what stands for it.
func nodeName(key, value string, m *valueMatch) string {
	switch {
	case m != nil:
		return key + "_" + m.name
	case value != "":
		return key + "_" + value
	default:
		return key
	}
}

// keyed says what the KeyValues of a rule are, so that most need no look at its levels.
type keyed uint8

const (
	byLevels  keyed = iota // what each level says
	byValues               // the entries' values
	byEntries              // the entries' keys and values
)

func keyedBy(path []level) keyed {
	withKey := path[0].withKey
	for i := range path {
		if l := &path[i]; l.withKey != withKey || l.share || l.prefixes.on {
			return byLevels
		}
	}
	if withKey {
		return byEntries
	}
	return byValues
}

// KeyValues appends to dst the texts that tell buckets of this rule apart, and returns it. They are, for each level of the rule's path, the
// entry's value, normalised if the rule says so; the entry's key before it where the rule does not fix the key (a * in the key, profile envoy); and
// what is written in the rule instead of both where share_threshold makes them share a bucket. Their number is the same for all requests of a rule.
//
// The entries are those with which Match returned r. The texts alias the entries or the rule. KeyValues does not allocate unless dst grows or an
// address changes by being normalised.
func (r *Rule) KeyValues(dst []string, entries []Entry) []string {
	switch r.keyed {
	case byValues:
		for i := range entries {
			dst = append(dst, entries[i].Value)
		}
		return dst
	case byEntries:
		for i := range entries {
			dst = append(dst, entries[i].Key, entries[i].Value)
		}
		return dst
	}
	for i := range r.source.path {
		l := &r.source.path[i]
		switch {
		case l.share:
			dst = append(dst, l.pattern())
		case l.withKey:
			dst = append(dst, entries[i].Key, l.prefixes.normalize(entries[i].Value))
		default:
			dst = append(dst, l.prefixes.normalize(entries[i].Value))
		}
	}
	return dst
}

// Partition returns what keeps buckets of requests under this rule together, ok if the rule says so: a name that all rules of the domain with this partition
// share, and the request's own value, as KeyValues has it. The entries are those with which Match returned r.
func (r *Rule) Partition(entries []Entry) (name, value string, ok bool) {
	if !r.partitioned {
		return "", "", false
	}
	l := &r.source.path[r.partition.by]
	if l.share {
		return r.partition.name, l.pattern(), true
	}
	return r.partition.name, l.prefixes.normalize(entries[r.partition.by].Value), true
}

// partition is what keeps buckets of a rule together.
type partition struct {
	name string
	by   int // the level whose value it is of
}

// pattern is what stands for a shared level's value.
func (l *level) pattern() string {
	switch {
	case l.match != nil:
		return l.match.name
	case l.value == "":
		return l.key
	default:
		return l.value
	}
}

// MetricPath returns the domain and path of a request under this rule for metrics and logs, joined by dots. It is FullPath, without allocation, unless
// detailed_metric or value_to_metric ask for the request's own values. The entries are those with which Match returned r.
func (r *Rule) MetricPath(entries []Entry) string {
	if !r.runtimePath {
		return r.full
	}
	var b strings.Builder
	b.WriteString(r.Domain.Name)
	for i := range r.source.path {
		l := &r.source.path[i]
		b.WriteByte('.')
		switch {
		case !r.Detailed && !l.toMetric, l.share:
			b.WriteString(l.name())
		default:
			b.WriteString(entries[i].Key)
			if entries[i].Value != "" {
				b.WriteByte('_')
				b.WriteString(entries[i].Value)
			}
		}
	}
	return b.String()
}

// Varies reports whether MetricPath depends on the request. Else it is FullPath.
func (r *Rule) Varies() bool { return r.runtimePath }

// FullPath returns the domain and the configured path, joined by a dot.
func (r *Rule) FullPath() string { return r.full }
