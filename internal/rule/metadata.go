package rule

import (
	"math"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// metadata is a tree of JSON-like values: nil, bool, float64, string, []any and map[string]any.
type metadata struct{ fields map[string]any }

// metadata reads a mapping of anything.
func (d *decoder) metadata(n *yaml.Node, at place) map[string]any {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.wrong(at, "%s", mismatch(n, "map", "want a map of keys and values"))
		return nil
	}
	m, _ := d.anything(n, at).(map[string]any)
	return m
}

// anything reads a node as JSON would have it. In profile envoy plain words mean what they mean in YAML 1.1, as in the reference.
func (d *decoder) anything(n *yaml.Node, at place) any {
	if !d.plain(n, at) {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		seen := make(map[string]int, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			name := k.Value
			if k.Kind == yaml.ScalarNode && k.ShortTag() != "!!merge" {
				if on, ok := boolean(k); ok && d.profile == Envoy {
					name = strconv.FormatBool(on)
				}
				k = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name, Line: k.Line, Column: k.Column}
			}
			if d.key(k, at, seen) {
				m[name] = d.anything(n.Content[i+1], at.field(name, mark{n.Content[i+1].Line, n.Content[i+1].Column}))
			}
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			list = append(list, d.anything(item, place{d.file, at.path + "[" + strconv.Itoa(i) + "]", mark{item.Line, item.Column}}))
		}
		return list
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool", "!!str":
		if on, ok := boolean(n); ok && (d.profile == Envoy || n.ShortTag() == "!!bool") {
			return on
		}
	case "!!int", "!!float":
		var f float64
		if err := n.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			d.invalid(at, "error parsing metadata: %s: want a finite number", short(n.Value))
			return nil
		}
		return f
	}
	return n.Value
}
