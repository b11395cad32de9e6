package rule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzLoad checks that no file makes Load panic or dawdle, and that what it says is usable.
func FuzzLoad(f *testing.F) {
	err := filepath.WalkDir("testdata", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		f.Add(data, strings.Contains(path, "envoy"))
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, envoy bool) {
		o := Options{}
		if envoy {
			o.DefaultProfile = Envoy
		}
		start := time.Now()
		s, warnings, err := Load([]File{{"rules.yaml", data}}, o)
		if took := time.Since(start); took > slow {
			t.Fatalf("took %v for %d bytes", took, len(data))
		}
		var errs Errors
		if err != nil && (!errors.As(err, &errs) || len(errs) == 0 || s != nil) {
			t.Fatalf("got snapshot %v and error %#v, want no snapshot and at least one of Errors", s, err)
		}
		for _, e := range errs {
			if e.File != "rules.yaml" || e.Line < 1 || e.Col < 1 || e.Msg == "" || strings.ContainsAny(e.Error(), "\n\r\x1b") {
				t.Fatalf("got %q, want one line with a place", e.Error())
			}
		}
		for _, w := range warnings {
			if w.Line < 1 || w.Code == "" || strings.ContainsAny(w.String(), "\n\r\x1b") {
				t.Fatalf("got %q, want one line with a place", w.String())
			}
		}
		if err == nil {
			checkSnapshot(t, s)
		}
	})
}

// checkSnapshot walks a snapshot as its users do.
func checkSnapshot(t *testing.T, s *Snapshot) {
	t.Helper()
	identities := map[string]bool{}
	limits := 0
	for _, d := range s.Domains() {
		if s.Domain(d.Name) != d {
			t.Fatalf("domain %q is not found by its name", d.Name)
		}
		for _, r := range d.Rules() {
			es := make([]Entry, len(r.source.path))
			byValue := true
			for i, l := range r.source.path {
				es[i] = Entry{l.key, l.value}
				byValue = byValue && l.match == nil
			}
			// What is written in the file reaches its own rule, unless something else than a value takes it before a key alone.
			if got := d.Match(es); byValue && got != r && !strings.ContainsAny(d.rulesText(), "*(") {
				t.Fatalf("%q reaches %v, want %s", es, got, r.Path)
			}
			if n := len(r.KeyValues(nil, es)); n < len(es) {
				t.Fatalf("%q has %d texts for %d entries", es, n, len(es))
			}
			r.MetricPath(es)
			for _, l := range r.Limits {
				if l.Bucket == nil || l.Policy == nil || int(l.ID) >= s.LimitCount() || identities[l.Identity] {
					t.Fatalf("limit %+v is not whole, or not the only one of its identity", l)
				}
				identities[l.Identity] = true
				limits++
			}
		}
	}
	if limits != s.LimitCount() {
		t.Fatalf("got %d limits, want %d", limits, s.LimitCount())
	}
}

// rulesText joins the paths of all rules.
func (d *Domain) rulesText() string {
	var b strings.Builder
	for _, r := range d.rules {
		b.WriteString(r.Path)
	}
	return b.String()
}

// plainNode is a node of the slow matcher: what the file says, in its order.
type plainNode struct {
	Key         string       `json:"key"`
	Value       string       `json:"value,omitempty"`
	AnyOf       []string     `json:"any_of,omitempty"`
	CIDR        []string     `json:"cidr,omitempty"`
	Prefix      string       `json:"prefix,omitempty"`
	Suffix      string       `json:"suffix,omitempty"`
	Regex       string       `json:"regex,omitempty"`
	Descriptors []*plainNode `json:"descriptors,omitempty"`
}

// newPlain reads a node: "key=value", "key|a,b" for any_of, "key@10.0.0.0/8,::1" for cidr, "key<text" for prefix, "key>text" for suffix, "key~text" for regex.
func newPlain(step string) *plainNode {
	i := strings.IndexAny(step, "=|@<>~")
	if i < 0 {
		return &plainNode{Key: step}
	}
	n, text := &plainNode{Key: step[:i]}, step[i+1:]
	switch step[i] {
	case '=':
		n.Value = text
	case '|':
		n.AnyOf = strings.Split(text, ",")
	case '@':
		n.CIDR = strings.Split(text, ",")
	case '<':
		n.Prefix = text
	case '>':
		n.Suffix = text
	case '~':
		n.Regex = text
	}
	return n
}

// id tells a node from its siblings.
func (n *plainNode) id(envoy bool) string {
	id := fmt.Sprintf("%q %q %q %q", n.pattern(), n.AnyOf, n.CIDR, n.Regex)
	if envoy && n.AnyOf == nil && n.CIDR == nil && n.Regex == "" {
		return joinPlain(n.Key, n.pattern())
	}
	return n.Key + id
}

// pattern is the value, or what a prefix or a suffix is another way to write.
func (n *plainNode) pattern() string {
	switch {
	case n.Prefix != "":
		return n.Prefix + "*"
	case n.Suffix != "":
		return "*" + n.Suffix
	}
	return n.Value
}

// parsePlain reads a tree from text: a line is a path, nodes between semicolons. It drops some of what the loader would refuse.
func parsePlain(s string, envoy bool) *plainNode {
	root := &plainNode{}
	for line := range strings.SplitSeq(s, "\n") {
		at := root
		for step := range strings.SplitSeq(line, ";") {
			read := newPlain(step)
			if read.Key == "" {
				break
			}
			var next *plainNode
			for _, c := range at.Descriptors {
				if c.id(envoy) == read.id(envoy) {
					next = c
				}
			}
			if next == nil {
				next = read
				at.Descriptors = append(at.Descriptors, next)
			}
			at = next
		}
	}
	return root
}

func joinPlain(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}

// glob is the obvious matcher of a pattern.
func glob(pattern, s string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '*':
		return glob(pattern[1:], s) || s != "" && glob(pattern, s[1:])
	}
	return s != "" && s[0] == pattern[0] && glob(pattern[1:], s[1:])
}

// next is the obvious form of children.next: every sibling is tried, once a kind.
func (n *plainNode) next(e Entry, envoy bool) *plainNode {
	tries := []func(Entry, bool) *plainNode{n.exact, n.listed, n.network, n.wild, n.regex, n.bare}
	for _, try := range tries {
		if c := try(e, envoy); c != nil {
			return c
		}
	}
	return nil
}

func (n *plainNode) byValue() bool { return n.AnyOf == nil && n.CIDR == nil && n.Regex == "" }

func (n *plainNode) exact(e Entry, envoy bool) *plainNode {
	for _, c := range n.Descriptors {
		if c.byValue() && (!envoy && c.Key == e.Key && c.pattern() == e.Value && e.Value != "" ||
			envoy && joinPlain(c.Key, c.pattern()) == e.Key+"_"+e.Value) {
			return c
		}
	}
	return nil
}

func (n *plainNode) listed(e Entry, envoy bool) *plainNode {
	for _, c := range n.Descriptors {
		for _, value := range c.AnyOf {
			if c.Key == e.Key && value == e.Value || envoy && c.Key+"_"+value == e.Key+"_"+e.Value {
				return c
			}
		}
	}
	return nil
}

func (n *plainNode) network(e Entry, _ bool) (best *plainNode) {
	ip, err := netip.ParseAddr(e.Value)
	if err != nil {
		return nil
	}
	ip = ip.Unmap().WithZone("")
	longest := -1
	for _, c := range n.Descriptors {
		for _, text := range c.CIDR {
			network, err := netip.ParsePrefix(text)
			if err != nil {
				one := netip.MustParseAddr(text).Unmap()
				network = netip.PrefixFrom(one, one.BitLen())
			}
			if network.Addr().Is4In6() {
				network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
			}
			if c.Key == e.Key && network.Contains(ip) && network.Bits() > longest {
				best, longest = c, network.Bits()
			}
		}
	}
	return best
}

func (n *plainNode) wild(e Entry, envoy bool) (best *plainNode) {
	for _, c := range n.Descriptors {
		value := c.pattern()
		switch {
		case !c.byValue() || !strings.Contains(c.Key+value, "*"):
		case envoy:
			if best == nil && glob(joinPlain(c.Key, value), e.Key+"_"+e.Value) {
				best = c
			}
		case glob(c.Key, e.Key) && (value == "" || glob(value, e.Value)) && (best == nil || c.beats(best)):
			best = c
		}
	}
	return best
}

func (n *plainNode) regex(e Entry, _ bool) *plainNode {
	for _, c := range n.Descriptors {
		if c.Regex != "" && c.Key == e.Key {
			re := regexp.MustCompile("(?s)^(?:" + c.Regex + ")")
			re.Longest() // the whole value matches if its longest match from the start is the whole
			if re.FindString(e.Value) == e.Value && re.MatchString(e.Value) {
				return c
			}
		}
	}
	return nil
}

func (n *plainNode) bare(e Entry, envoy bool) *plainNode {
	for _, c := range n.Descriptors {
		if c.byValue() && (!envoy && c.Key == e.Key && c.pattern() == "" || envoy && joinPlain(c.Key, c.pattern()) == e.Key) {
			return c
		}
	}
	if !envoy {
		return nil
	}
	for _, c := range n.Descriptors { // and the joined text of a listed value may be the key of an entry
		for _, value := range c.AnyOf {
			if c.Key+"_"+value == e.Key {
				return c
			}
		}
	}
	return nil
}

// beats reports whether a pattern wins over one that stands before it in the file.
func (n *plainNode) beats(other *plainNode) bool {
	rank := func(n *plainNode) (literals, prefix int) {
		s := n.Key + n.pattern()
		return len(strings.ReplaceAll(s, "*", "")), strings.Index(s, "*")
	}
	l, p := rank(n)
	ol, op := rank(other)
	return l > ol || l == ol && p > op
}

// name is the node's name in a path, as the rules have it.
func (n *plainNode) name() string {
	switch {
	case n.AnyOf != nil:
		list := slices.Sorted(slices.Values(n.AnyOf))
		return n.Key + "_" + newValueMatch(StepAnyOf, list, nil).name
	case n.CIDR != nil:
		var nets []netip.Prefix
		for _, text := range n.CIDR {
			network, _ := parseNetwork(text)
			nets = append(nets, network)
		}
		slices.SortFunc(nets, netip.Prefix.Compare)
		return n.Key + "_" + newValueMatch(StepCIDR, nil, nets).name
	case n.Regex != "":
		return n.Key + "_" + newValueMatch(StepRegex, []string{n.Regex}, nil).name
	}
	return joinPlain(n.Key, n.pattern())
}

// match returns the path reached, "none" if there is none.
func (n *plainNode) match(es []Entry, envoy bool) string {
	if len(es) == 0 {
		return "none"
	}
	var names []string
	for _, e := range es {
		if n = n.next(e, envoy); n == nil {
			return "none"
		}
		names = append(names, n.name())
	}
	if len(n.Descriptors) > 0 {
		return "none" // no limit here, only a step
	}
	return strings.Join(names, ".")
}

// FuzzMatch compares the compiled matcher with the slow one.
func FuzzMatch(f *testing.F) {
	f.Add("a=b;c=d\na\na=x*;c\nfoo*", "a=b;c=d", false)
	f.Add("a=b_c\na_b=c\na_b_c*\na=*", "a=b_c", true)
	f.Add("p=/api/*\np=/api/admin/*\np=*.png\np=/*/x\np=/a*i/x*z\np", "p=/api/xyz", false)
	f.Add("p=a*\np=aa*\np=aaa*\np=a*a\np=*a\np=**a\np=*", "p=aaaa", true)
	f.Add("k*=v*\nk*=v\n*=v*\nkey=v*\nkey", "key=v1", false)
	f.Add("k=ab*ba\nk=a*a\nk=abba", "k=aba", false)
	f.Add("k|a,b\nk=a\nk<a\nk>b\nk~[ab]\nk", "k=b", false)
	f.Add("k|a,b\nk=a\nk<a\nk>b\nk~[ab]\nk", "k=a", true)
	f.Add("k@10.0.0.0/8,::1\nk@10.1.0.0/16\nk=10.1.2.*\nk~.*\nk", "k=10.1.2.3", false)
	f.Add("k@10.0.0.0/8,::1;x\nk@::ffff:10.1.0.0/112\nk=1*", "k=::ffff:a01:203;x=", true)
	f.Add("a|b_c\na_b~c|d\na_b|c", "a_b=c", true)
	f.Add("k~a|ab\nk~(a+)+\nk~[^a]*\nk", "k=ab", false)
	f.Fuzz(func(t *testing.T, tree, request string, envoy bool) {
		if len(tree) > 300 || len(request) > 100 || strings.Count(tree, "*") > 12 || !utf8.ValidString(tree) ||
			strings.Contains(tree, "\u0085") /* a line break to YAML, and so a space in a text */ {
			t.Skip("too large for the slow matcher, or not for a file")
		}
		root := parsePlain(tree, envoy)
		profile := "native"
		if envoy {
			profile = "envoy"
		}
		data, err := json.Marshal(map[string]any{"domain": "d", "profile": profile, "descriptors": root.Descriptors})
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := Load([]File{{"rules.json", data}}, Options{})
		if err != nil {
			t.Skip("more levels than a file may have, or characters that YAML does not")
		}
		var es []Entry
		for step := range strings.SplitSeq(request, ";") {
			key, value, _ := strings.Cut(step, "=")
			es = append(es, Entry{key, value})
		}
		got := "none"
		if r := s.Domain("d").Match(es); r != nil {
			got = r.Path
		}
		if want := root.match(es, envoy); got != want {
			t.Fatalf("%s: %q reaches %s, want %s\n%s", profile, es, got, want, tree)
		}
	})
}
