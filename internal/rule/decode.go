package rule

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

const (
	maxFileBytes = 1 << 20 // no rule file is longer, unless Options say so; a longer one is not read
	maxLevels    = 64      // levels of descriptors
	maxDepth     = 4 * maxLevels
	maxLimits    = 32   // of one descriptor, well below what a request may charge (store.MaxCharges)
	maxPathBytes = 4096 // of a descriptor's path: it is in memory once a rule
)

// decoder reads one file into the schema's types.
type decoder struct {
	*problems
	file    string
	profile Profile
	level   int // of descriptors
}

// decode reads a file strictly: what is not in the schema, or is there twice, is an error. It returns what could be understood, nil if
// there is nothing.
func decode(f File, o Options, p *problems) *fileSpec {
	d := &decoder{problems: p, file: f.Name, profile: o.DefaultProfile}
	top := place{file: f.Name, mark: mark{1, 1}}
	if most := cmp.Or(o.MaxFileBytes, maxFileBytes); len(f.Data) > most {
		d.invalid(top, "file of %d bytes: want at most %d", len(f.Data), most)
		return nil
	}
	root, ok := d.parse(f.Data, top)
	if !ok {
		return nil
	}
	if root == nil || isNull(root) {
		d.wrong(top, "config file cannot have empty domain")
		return nil
	}
	d.profile = profileOf(root, o.DefaultProfile)
	s := &fileSpec{Profile: profileName{p: d.profile}}
	top.mark = mark{root.Line, root.Column}
	d.value(root, top, reflect.ValueOf(s).Elem())
	if s.at == (place{}) {
		return nil // not a mapping
	}
	return s
}

// parse returns the root of the file's one document, nil if it is empty.
func (d *decoder) parse(data []byte, top place) (root *yaml.Node, ok bool) {
	if at, msg := stray(data); msg != "" {
		d.invalid(place{file: d.file, mark: at}, "error loading config file: yaml: %s", msg)
		return nil, false
	}
	l, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		d.invalid(top, "error loading config file: %v", err)
		return nil, false
	}
	for first := true; ; first = false {
		var doc yaml.Node
		switch err := l.Load(&doc); {
		case errors.Is(err, io.EOF):
			return root, true
		case err != nil:
			d.syntax(err, top)
			return nil, false
		case len(doc.Content) == 0:
		case first:
			root = doc.Content[0]
		case !isNull(doc.Content[0]):
			at := place{file: d.file, mark: mark{doc.Content[0].Line, doc.Content[0].Column}}
			d.invalid(at, "a second YAML document: want one document a file, since the reference service ignores the others")
			return root, true
		}
	}
}

// syntax reports what the YAML parser refused.
func (d *decoder) syntax(err error, top place) {
	msg := err.Error()
	if le, ok := errors.AsType[*yaml.LoadError](err); ok {
		msg = fmt.Sprintf("line %d: %s", le.Mark.Line, le.Message)
		if le.Mark.Line > 0 {
			top.mark = mark{le.Mark.Line, max(le.Mark.Column, 1)}
		}
	}
	d.invalid(top, "error loading config file: yaml: %s", cut(msg, 256))
}

// profileOf returns the profile a file asks for, before the file is decoded: some rules of decoding depend on it.
func profileOf(root *yaml.Node, byDefault Profile) Profile {
	if root.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(root.Content); i += 2 {
			var p profileName
			if root.Content[i].Value == "profile" && p.read(root.Content[i+1], byDefault) == "" {
				return p.p
			}
		}
	}
	return byDefault
}

// value decodes a node into v, which is a scalar of the schema, a mapping's struct, a pointer to one, or a slice.
func (d *decoder) value(n *yaml.Node, at place, v reflect.Value) {
	plain := d.plain(n, at)
	switch t := v.Addr().Interface().(type) {
	case scalar:
		d.scalar(n, at, t, plain)
		return
	case *metadata:
		if plain {
			t.fields = d.metadata(n, at)
		}
		return
	case *texts:
		if plain && !isNull(n) {
			d.texts(n, at, t)
		}
		return
	case *textMap:
		if plain && !isNull(n) {
			d.textMap(n, at, t)
		}
		return
	}
	switch {
	case !plain || isNull(n):
	case v.Kind() == reflect.Slice:
		d.list(n, at, v)
	case n.Kind != yaml.MappingNode:
		d.wrong(at, "%s", mismatch(n, "map", "want a map of keys and values"))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.mapping(n, at, v.Elem())
	default:
		d.mapping(n, at, v)
	}
}

// scalar reads a scalar. What is wrong with one is not to look as if it were absent.
func (d *decoder) scalar(n *yaml.Node, at place, s scalar, plain bool) {
	if _, ok := s.(*valueText); plain && isNull(n) && !ok {
		return // as if it were not there
	}
	s.stand(at.mark)
	if !plain {
		s.spoil()
	} else if problem := s.read(n, d.profile); problem != "" {
		s.spoil()
		d.wrong(at, "%s", problem)
	}
}

// plain reports whether a node is what it seems: no alias, no tag of its own.
func (d *decoder) plain(n *yaml.Node, at place) bool {
	if n.Kind == yaml.AliasNode {
		d.invalid(at, "alias *%s: want the value itself, since aliases hide what a limit is", short(n.Value))
		return false
	}
	switch n.ShortTag() {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!timestamp", "!!map", "!!seq", "!!merge":
		return true
	}
	d.invalid(at, "tag %s: want none", short(n.ShortTag()))
	return false
}

func (d *decoder) list(n *yaml.Node, at place, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(at, "%s", mismatch(n, "list", "want a list"))
		return
	}
	if v.Type().Elem() == reflect.TypeFor[*descriptorSpec]() {
		if d.level++; d.level > maxLevels {
			d.invalid(at, "more than %d levels of descriptors", maxLevels)
			d.level--
			return
		}
		defer func() { d.level-- }()
	}
	items := reflect.MakeSlice(v.Type(), 0, len(n.Content))
	for i, item := range n.Content {
		here := place{d.file, fmt.Sprintf("%s[%d]", at.path, i), mark{item.Line, item.Column}}
		if !d.plain(item, here) {
			continue
		}
		if item.Kind != yaml.MappingNode {
			d.wrong(here, "config error, yaml file contains list of type other than map: %s", describe(item))
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(item, here, e)
		items = reflect.Append(items, e)
	}
	v.Set(items)
}

func (d *decoder) mapping(n *yaml.Node, at place, v reflect.Value) {
	v.Addr().Interface().(interface{ stand(place) }).stand(at)
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		here := at.field(k.Value, mark{k.Line, k.Column})
		if !d.key(k, at, seen) {
			continue
		}
		f, ok := fields[v.Type()][k.Value]
		switch {
		case !ok:
			d.stray(k.Value, here, v.Type())
		case f.unsupported:
			d.wrong(here, "%s is not supported by this version", k.Value)
		default:
			here.mark = mark{value.Line, value.Column}
			d.value(value, here, v.Field(f.index))
			if c, ok := reflect.TypeAssert[*count](v.Field(f.index).Addr()); ok && c.present() && !c.bad && (c.n < f.least || c.n > f.most) {
				c.spoil()
				d.wrong(here, "%d: want %d to %d", c.n, f.least, f.most)
			}
		}
	}
}

// key reports whether a mapping's key is usable: a text, new in its mapping. It reports the key if not.
func (d *decoder) key(k *yaml.Node, at place, seen map[string]int) bool {
	here := at.field(k.Value, mark{k.Line, k.Column})
	switch {
	case k.Kind == yaml.AliasNode || k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge":
		d.invalid(here, "merge keys and aliases are not allowed: want the keys themselves, since they hide what a limit is")
		return false
	case k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str":
		here.path = at.path
		d.wrong(here, "config error, key is not of type string: %s", describe(k))
		return false
	}
	if line := seen[k.Value]; line != 0 {
		d.invalid(here, "key '%s' is given twice, first on line %d", short(k.Value), line)
		return false
	}
	seen[k.Value] = k.Line
	return true
}

// describe names a node of the wrong kind.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "null"
	}
	return short(n.Value)
}

// stray reports a key that its mapping does not have.
func (d *decoder) stray(key string, at place, t reflect.Type) {
	homes, supported := homesOf(key)
	switch {
	case homes != "" && !supported:
		d.wrong(at, "%s is not supported by this version", key)
	case homes == "":
		d.wrong(at, "config error, unknown key '%s'%s", short(key), suggestion(key, t))
	case d.profile == Envoy && harmless[key] && !ours[t]:
		d.warn(at, LintIgnoredKey, "move it, or take it out", "key '%s' has no effect here; it belongs in %s", key, homes)
	default:
		d.wrong(at, "key '%s' does not belong here; it belongs in %s", key, homes)
	}
}

// ours are the mappings that the reference does not have.
var ours = map[reflect.Type]bool{
	reflect.TypeFor[defaultsSpec](): true, reflect.TypeFor[normalizeSpec](): true, reflect.TypeFor[blockSpec](): true, reflect.TypeFor[lookupSpec](): true,
}

// harmless are the reference's keys that do no harm in the wrong place, where the reference ignores them. The others would take a limit with them.
var harmless = map[string]bool{
	"domain": true, "key": true, "value": true, "unit": true, "unlimited": true, "name": true, "replaces": true, "shadow_mode": true,
	"quota_mode": true, "detailed_metric": true, "value_to_metric": true, "share_threshold": true, "metadata": true,
}
