package rule

import (
	"regexp"
	"unsafe"
)

// Entry is one key and value of a descriptor, as bytes of text: not necessarily UTF-8.
type Entry struct{ Key, Value string }

// treeNode is a node of a domain's compiled tree. Its rule lies in it: whoever comes to the node reads the rule next, and
// among many rules none is in a cache. What every request reads of both are its first 64 bytes, a cache line; the next one
// is the first limit.
type treeNode struct {
	children children // nil for a leaf
	source   *source
	ruled    bool // whether there is a rule; else the node only leads to others
	rule     Rule
}

// found returns the node's rule, nil if it has none.
func (n *treeNode) found() *Rule {
	if !n.ruled {
		return nil
	}
	return &n.rule
}

// source is where a node is configured.
type source struct {
	path      []level // its own level last
	file      string
	line, col int
}

// children are the nodes below a node. Neither method allocates.
type children interface {
	// next returns the child that an entry leads to, nil if there is none.
	next(e Entry) *treeNode
	// wild is next among the children with a star in their key or value.
	wild(e Entry) *treeNode
}

// Match returns the rule that the entries reach, nil if there is none: each entry leads from a node to one of its children, the rule is that of the node
// where the last one ends, and there is no way back: a child that lacks what the next entry needs does not give way to a
// more general sibling. Of siblings that fit, the one with the exact value wins, then one of any_of, then the longest network of cidr,
// then the best pattern, then the first regex in the file, then the one without a value. The best pattern is the one with most literal text (then most of it before its first star, then the first in the file); in profile envoy the
// first in the file. A node that has children but no limit is no rule.
//
// It does not allocate, save in profile envoy for an entry of more than 511 bytes, and where cidr meets text that looks like an address and is
// none. Its cost grows with the length of the entries and hardly with the number of rules; only native siblings with a * in their key are
// tried one by one, and the regexes of one key.
func (d *Domain) Match(entries []Entry) *Rule {
	n := &d.root
	for i := range entries {
		if n.children == nil {
			return nil
		}
		if n = n.children.next(entries[i]); n == nil {
			return nil
		}
	}
	return n.found()
}

// apart are the children in profile native, where key and value are matched each on its own.
type apart struct {
	keys     map[string]*values
	wildKeys []wildKey // children with a star in their key, by rank
}

// values are the children of one key.
type values struct {
	exact    map[string]*treeNode // of any_of too
	networks networks[*treeNode]
	patterns patterns[*treeNode]
	regexes  []regexNode // in the order of the files
	any      *treeNode
}

// regexNode is a child with a regex.
type regexNode struct {
	*regexp.Regexp
	node *treeNode
}

// match returns the first child whose regex matches the value, nil if none does.
func (v *values) match(value string) *treeNode {
	value = value[:min(len(value), maxRegexInput)]
	for i := range v.regexes {
		if v.regexes[i].MatchString(value) {
			return v.regexes[i].node
		}
	}
	return nil
}

func (c *apart) next(e Entry) *treeNode {
	v := c.keys[e.Key]
	if v != nil {
		if n := v.exact[e.Value]; n != nil {
			return n
		}
		if n, ok := v.networks.find(e.Value); ok {
			return n
		}
	}
	if n := c.wildOf(v, e); n != nil {
		return n
	}
	if v == nil {
		return nil
	}
	if n := v.match(e.Value); n != nil {
		return n
	}
	return v.any
}

func (c *apart) wild(e Entry) *treeNode { return c.wildOf(c.keys[e.Key], e) }

// wildOf is wild, given the children of the entry's key.
func (c *apart) wildOf(v *values, e Entry) *treeNode {
	var best *ranked[*treeNode]
	if v != nil {
		best = v.patterns.find(e.Value)
	}
	for i := range c.wildKeys {
		w := &c.wildKeys[i]
		if best != nil && best.rank < w.rank {
			break
		}
		if w.match(e) {
			return w.node
		}
	}
	if best != nil {
		return best.to
	}
	return nil
}

// wildKey is a child with a star in its key.
type wildKey struct {
	key      pattern
	value    string   // the exact value, or "" for any
	patterns *pattern // the value's pattern, if it is one
	rank     int
	node     *treeNode
}

func (w *wildKey) match(e Entry) bool {
	if !w.key.match(e.Key) {
		return false
	}
	if w.patterns != nil {
		return w.patterns.match(e.Value)
	}
	return w.value == "" || w.value == e.Value
}

// joined are the children in profile envoy, where key and value are joined by an underscore and matched as one text, as in the reference service.
type joined struct {
	exact    map[string]*treeNode // by key, or key_value; patterns too, as they are written
	patterns patterns[*treeNode]
	keys     map[string]*values // cidr and regex, by key; nil if there are none
}

func (c *joined) next(e Entry) *treeNode {
	var scratch [scratchBytes]byte
	b := join(scratch[:0], e)
	if n := c.exact[string(b)]; n != nil {
		return n
	}
	v := c.keys[e.Key]
	if v != nil {
		if n, ok := v.networks.find(e.Value); ok {
			return n
		}
	}
	if r := c.patterns.find(view(b)); r != nil {
		return r.to
	}
	if v != nil {
		if n := v.match(e.Value); n != nil {
			return n
		}
	}
	return c.exact[e.Key]
}

func (c *joined) wild(e Entry) *treeNode {
	var scratch [scratchBytes]byte
	if r := c.patterns.find(view(join(scratch[:0], e))); r != nil {
		return r.to
	}
	return nil
}

// scratchBytes is how long a joined entry may be without an allocation.
const scratchBytes = 512

// join appends key_value to dst.
func join(dst []byte, e Entry) []byte {
	return append(append(append(dst, e.Key...), '_'), e.Value...)
}

// view returns the bytes as a string without copying them. It is for a call that keeps nothing of the string, while nobody writes the bytes.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
