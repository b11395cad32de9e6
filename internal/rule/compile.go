package rule

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// compile makes a domain of valid rules. It cannot fail: what could has been validated.
func (s *Snapshot) compile(spec *domainSpec) *Domain {
	policy := spec.policy
	d := &Domain{Name: spec.name, Profile: spec.profile, Defaults: Defaults{Algorithm: spec.algorithm, Policy: &policy}}
	c := &compiler{s, d, map[string]bool{}}
	d.block(spec.blocklist)
	s.lookup(d, spec.lookups)
	d.root.children = c.children(spec.descriptors, nil, appendText(nil, d.Name))
	return d
}

type compiler struct {
	snapshot *Snapshot
	domain   *Domain
	labels   map[string]bool // Policy.Rule of the limits so far
}

// child is a compiled child and what its parent needs to know of it.
type child struct {
	spec  *descriptorSpec
	node  *treeNode
	order int // among its siblings in the files
}

// children compiles the descriptors below a path, whose identity is given.
func (c *compiler) children(specs []*descriptorSpec, path []level, identity []byte) children {
	if len(specs) == 0 {
		return nil
	}
	all := make([]child, len(specs))
	for i, s := range specs {
		all[i] = child{s, c.node(s, path, identity), i}
	}
	return newChildren(c.domain.Profile, all)
}

func newChildren(p Profile, all []child) children {
	if p == Envoy {
		return newJoined(all)
	}
	return newApart(all)
}

func (c *compiler) node(s *descriptorSpec, path []level, identity []byte) *treeNode {
	l := level{
		key:      s.Key.s,
		value:    s.Value.s,
		match:    s.match,
		share:    s.ShareThreshold.on,
		toMetric: s.ValueToMetric.on,
		withKey:  c.domain.Profile == Envoy || strings.Contains(s.Key.s, "*"),
		prefixes: s.prefixes(),
	}
	path = append(slices.Clip(path), l)
	identity = appendLevel(slices.Clip(identity), &l)
	from := &source{path, s.at.file, s.at.line, s.at.col}
	n := &treeNode{source: from}
	if n.ruled = s.RateLimit != nil || len(s.Limits) > 0 || len(s.Descriptors) == 0; n.ruled {
		c.rule(&n.rule, s, from, identity)
	}
	n.children = c.children(s.Descriptors, path, identity)
	return n
}

// rule makes r the rule of s.
func (c *compiler) rule(r *Rule, s *descriptorSpec, from *source, identity []byte) {
	*r = Rule{
		File:       from.file,
		Line:       from.line,
		Col:        from.col,
		Domain:     c.domain,
		Shadow:     s.ShadowMode.on,
		Quota:      s.QuotaMode.on,
		QuotaGroup: s.QuotaGroup.s,
		Metadata:   s.Metadata.fields,
		Detailed:   s.DetailedMetric.on,
		source:     from,
		keyed:      keyedBy(from.path),
	}
	r.runtimePath = r.Detailed || slices.ContainsFunc(from.path, func(l level) bool { return l.toMetric })
	c.domain.rules = append(c.domain.rules, r)
	identities := r.texts(s, identity)
	for i, l := range s.limits() {
		for _, name := range l.Replaces {
			r.Replaces = append(r.Replaces, name.Name.s)
		}
		if l.Unlimited.on {
			r.Unlimited = true
		} else {
			if len(r.Limits) == 0 {
				r.first = c.limit(r, l, identities[i])
				r.one[0] = &r.first
				r.Limits = r.one[:]
				continue
			}
			more := c.limit(r, l, identities[i])
			r.Limits = append(r.Limits, &more)
		}
	}
	const _ = uint8(maxLimits)
	r.limits, r.replaces, r.partitioned = uint8(len(r.Limits)), len(r.Replaces) > 0, s.Partition.s != ""
	if r.partitioned {
		r.partition = &partition{
			name: string(appendText(appendText([]byte("partition "), c.domain.Name), s.Partition.s)),
			by:   slices.IndexFunc(from.path, func(l level) bool { return l.key == s.Partition.s }),
		}
	}
	if s.RateLimit != nil {
		r.Name = s.RateLimit.Name.s
	}
}

// texts gives r its texts and returns the identities of the limits of s. They are parts of one text, since a request reads
// both its path and an identity.
func (r *Rule) texts(s *descriptorSpec, identity []byte) []string {
	b := []byte(r.Domain.Name)
	for i := range r.source.path {
		b = append(append(b, '.'), r.source.path[i].name()...)
	}
	ends := []int{len(b)}
	for _, l := range s.limits() {
		b = appendLimit(append(b, identity...), l)
		ends = append(ends, len(b))
	}
	if len(ends) == 1 {
		b = append(b, identity...)
	}
	text := string(b)
	r.full = text[:ends[0]]
	r.Path = r.full[len(r.Domain.Name)+1:]
	r.identity = text[ends[0]:][:len(identity)]
	identities := make([]string, len(ends)-1)
	for i := range identities {
		identities[i] = text[ends[i]:ends[i+1]]
	}
	return identities
}

func (c *compiler) limit(r *Rule, l *limitSpec, identity string) Limit {
	policy := &bucket.Policy{OnFailure: l.OnBackendFailure.m, NodeScope: l.Scope.node, Refunds: l.Refunds.on, Rule: c.label(r, l)}
	policy.LocalFraction, _ = l.LocalFraction.millionths()
	id := c.snapshot.limits
	c.snapshot.limits++
	return Limit{
		ID:         int32(id),
		Rule:       r,
		Name:       l.Name.s,
		Requests:   l.RequestsPerUnit.n,
		Unit:       l.Unit.unit,
		Multiplier: l.UnitMultiplier.n,
		Bucket:     l.bucket,
		Policy:     policy,
		Identity:   identity,
	}
}

// label names a limit for people: by its name, else by its path, and by more where another limit of the domain has that already.
func (c *compiler) label(r *Rule, l *limitSpec) string {
	period := l.Unit.unit.String()
	if l.UnitMultiplier.n != 1 {
		period = strconv.Itoa(int(l.UnitMultiplier.n)) + period
	}
	last := r.full + "." + strconv.Itoa(c.snapshot.limits)
	candidates := []string{r.full, r.full + "." + period, r.full + "." + period + "." + l.Algorithm.a.Family().String(), last}
	if l.Name.s != "" {
		candidates = []string{c.domain.Name + "." + l.Name.s, r.full + "." + l.Name.s, last}
	}
	for _, label := range candidates {
		if !c.labels[label] {
			c.labels[label] = true
			return label
		}
	}
	return last
}

// prefixes returns what a node normalises addresses to.
func (s *descriptorSpec) prefixes() prefixes {
	if s.Normalize == nil {
		return prefixes{}
	}
	p := prefixes{on: true, ipv4: 32, ipv6: 128}
	if s.Normalize.IPv4.present() {
		p.ipv4 = int(s.Normalize.IPv4.n)
	}
	if s.Normalize.IPv6.present() {
		p.ipv6 = int(s.Normalize.IPv6.n)
	}
	return p
}

// newJoined compiles siblings of profile envoy.
func newJoined(all []child) *joined {
	j := &joined{exact: make(map[string]*treeNode, len(all))}
	var wild []ranked[*treeNode]
	for _, c := range all {
		if m := c.spec.match; m != nil && m.kind != StepAnyOf {
			if j.keys == nil {
				j.keys = map[string]*values{}
			}
			valuesOf(j.keys, c.spec.Key.s).add(m, c.node)
			continue
		}
		if c.spec.match != nil {
			continue
		}
		name := c.node.text(c.spec.name())
		j.exact[name] = c.node
		if strings.Contains(name, "*") {
			wild = append(wild, ranked[*treeNode]{newPattern(name), c.order, c.node})
		}
	}
	for _, c := range all {
		c.eachOf(func(value string) { setIfAbsent(j.exact, c.spec.Key.s+"_"+value, c.node) })
	}
	j.patterns = newPatterns(wild)
	return j
}

// newApart compiles siblings of profile native.
func newApart(all []child) *apart {
	a := &apart{keys: map[string]*values{}}
	wild := map[string][]ranked[*treeNode]{} // by key
	ranks := ranksOf(all)
	for _, c := range all {
		key, value := c.spec.Key.s, c.spec.Value.s
		v := valuesOf(a.keys, key)
		switch {
		case c.spec.match != nil:
			v.add(c.spec.match, c.node)
			continue
		case value == "":
			v.any = c.node
		default:
			v.exact[c.node.text(value)] = c.node
		}
		switch rank := ranks[c.order]; {
		case strings.Contains(key, "*"):
			w := wildKey{key: newPattern(key), value: value, rank: rank, node: c.node}
			if strings.Contains(value, "*") {
				p := newPattern(value)
				w.patterns = &p
			}
			a.wildKeys = append(a.wildKeys, w)
		case strings.Contains(value, "*"):
			wild[key] = append(wild[key], ranked[*treeNode]{newPattern(value), rank, c.node})
		}
	}
	for _, c := range all {
		c.eachOf(func(value string) { setIfAbsent(a.keys[c.spec.Key.s].exact, value, c.node) })
	}
	for key, list := range wild {
		a.keys[key].patterns = newPatterns(list)
	}
	slices.SortFunc(a.wildKeys, func(x, y wildKey) int { return cmp.Compare(x.rank, y.rank) })
	return a
}

// text returns a text that the path of the node's rule ends with as a part of it, for the sake of who reads both.
func (n *treeNode) text(s string) string {
	if n.ruled && strings.HasSuffix(n.rule.full, s) {
		return n.rule.full[len(n.rule.full)-len(s):]
	}
	return s
}

// valuesOf returns the children of a key, which it makes if need be.
func valuesOf(keys map[string]*values, key string) *values {
	v := keys[key]
	if v == nil {
		v = &values{exact: map[string]*treeNode{}}
		keys[key] = v
	}
	return v
}

// add adds a child with a cidr or a regex.
func (v *values) add(m *valueMatch, n *treeNode) {
	for _, network := range m.nets {
		v.networks.insert(network, n)
	}
	if m.regex != nil {
		v.regexes = append(v.regexes, regexNode{m.regex, n})
	}
}

// eachOf calls f with what the child's any_of lists.
func (c child) eachOf(f func(value string)) {
	if m := c.spec.match; m != nil && m.kind == StepAnyOf {
		for _, value := range m.texts {
			f(value)
		}
	}
}

// setIfAbsent keeps what a value of its own leads to.
func setIfAbsent(m map[string]*treeNode, key string, n *treeNode) {
	if m[key] == nil {
		m[key] = n
	}
}

// ranksOf ranks siblings by how much literal text they have, then by how much of it stands before the first star, then by their order.
func ranksOf(all []child) []int {
	literals := func(c child) (all, prefix int) {
		s := c.spec.Key.s + c.spec.Value.s
		prefix = strings.IndexByte(s, '*')
		if prefix < 0 {
			prefix = len(s)
		}
		return len(s) - strings.Count(s, "*"), prefix
	}
	sorted := slices.SortedStableFunc(slices.Values(all), func(a, b child) int {
		la, pa := literals(a)
		lb, pb := literals(b)
		return cmp.Or(cmp.Compare(lb, la), cmp.Compare(pb, pa))
	})
	ranks := make([]int, len(all))
	for rank, c := range sorted {
		ranks[c.order] = rank
	}
	return ranks
}
