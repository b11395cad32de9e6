package rule

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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
			es := make([]Entry, len(r.levels))
			for i, l := range r.levels {
				es[i] = Entry{l.key, l.value}
			}
			// What is written in the file reaches its own rule, unless a pattern takes it before a key alone.
			if got := d.Match(es); got != r && !strings.Contains(d.rulesText(), "*") {
				t.Fatalf("%q reaches %v, want %s", es, got, r.Path)
			}
			if n := len(r.KeyValues(nil, es)); n < len(es) {
				t.Fatalf("%q has %d texts for %d entries", es, n, len(es))
			}
			r.MetricPath(es)
			for _, l := range r.Limits {
				if l.Bucket == nil || l.Policy == nil || l.ID >= s.LimitCount() || identities[l.Identity] {
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
	Descriptors []*plainNode `json:"descriptors,omitempty"`
}

// parsePlain reads a tree from text: a line is a path, "key=value;key=value". It drops what the loader would refuse.
func parsePlain(s string, envoy bool) *plainNode {
	root := &plainNode{}
	for line := range strings.SplitSeq(s, "\n") {
		at := root
		for step := range strings.SplitSeq(line, ";") {
			key, value, _ := strings.Cut(step, "=")
			if key == "" {
				break
			}
			var next *plainNode
			for _, c := range at.Descriptors {
				if envoy && joinPlain(c.Key, c.Value) == joinPlain(key, value) || c.Key == key && c.Value == value {
					next = c
				}
			}
			if next == nil {
				next = &plainNode{Key: key, Value: value}
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

// next is the obvious form of children.next.
func (n *plainNode) next(e Entry, envoy bool) *plainNode {
	var bare, best *plainNode
	for _, c := range n.Descriptors {
		if envoy {
			if joinPlain(c.Key, c.Value) == e.Key+"_"+e.Value {
				return c
			}
			if joinPlain(c.Key, c.Value) == e.Key {
				bare = c
			}
			if text := joinPlain(c.Key, c.Value); best == nil && strings.Contains(text, "*") && glob(text, e.Key+"_"+e.Value) {
				best = c
			}
			continue
		}
		if c.Key == e.Key && c.Value == e.Value && c.Value != "" {
			return c
		}
		if c.Key == e.Key && c.Value == "" {
			bare = c
		}
		if strings.Contains(c.Key+c.Value, "*") && glob(c.Key, e.Key) && (c.Value == "" || glob(c.Value, e.Value)) && (best == nil || c.beats(best)) {
			best = c
		}
	}
	if best != nil {
		return best
	}
	return bare
}

// beats reports whether a pattern wins over one that stands before it in the file.
func (n *plainNode) beats(other *plainNode) bool {
	rank := func(n *plainNode) (literals, prefix int) {
		s := n.Key + n.Value
		return len(strings.ReplaceAll(s, "*", "")), strings.Index(s, "*")
	}
	l, p := rank(n)
	ol, op := rank(other)
	return l > ol || l == ol && p > op
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
		names = append(names, joinPlain(n.Key, n.Value))
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
	f.Fuzz(func(t *testing.T, tree, request string, envoy bool) {
		if len(tree) > 300 || len(request) > 100 || strings.Count(tree, "*") > 12 || !utf8.ValidString(tree) {
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
