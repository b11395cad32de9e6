package rule

import (
	"strconv"

	"go.yaml.in/yaml/v4"
)

// texts is a list of texts, or one.
type texts struct {
	given
	list []listed
}

// listed is one text of a list, as written.
type listed struct {
	s  string
	at mark
}

// item returns the place of the i-th text, given that of the whole.
func (t *texts) item(at place, i int) place {
	if at.mark = t.list[i].at; at.mark != t.at { // else it is the one text, and no list
		at.path += "[" + strconv.Itoa(i) + "]"
	}
	return at
}

// textMap maps texts to texts.
type textMap struct {
	given
	values map[string]string
}

// textMap reads a mapping of scalars to scalars, each as written.
func (d *decoder) textMap(n *yaml.Node, at place, t *textMap) {
	t.stand(at.mark)
	if n.Kind != yaml.MappingNode {
		t.spoil()
		d.wrong(at, "%s", mismatch(n, "map", "want a map of values to what is derived from them"))
		return
	}
	t.values = make(map[string]string, len(n.Content)/2)
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.ShortTag() != "!!merge" {
			k = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: k.Value, Line: k.Line, Column: k.Column}
		}
		here := at.field(k.Value, mark{v.Line, v.Column})
		switch {
		case !d.key(k, at, seen), !d.plain(v, here):
			t.spoil()
		case v.Kind != yaml.ScalarNode || isNull(v):
			t.spoil()
			d.wrong(here, "%s", mismatch(v, "string", "want text"))
		case v.Value == "":
			t.spoil()
			d.invalid(here, "is empty: want what is derived from '%s'", short(k.Value))
		default:
			t.values[k.Value] = v.Value
		}
	}
}

// texts reads a list of scalars, or one scalar.
func (d *decoder) texts(n *yaml.Node, at place, t *texts) {
	t.stand(at.mark)
	items := []*yaml.Node{n}
	switch n.Kind {
	case yaml.SequenceNode:
		items = n.Content
	case yaml.ScalarNode:
	default:
		t.spoil()
		d.wrong(at, "%s", mismatch(n, "list", "want text or a list of texts"))
		return
	}
	for i, item := range items {
		here := at
		if item != n {
			here = place{d.file, at.path + "[" + strconv.Itoa(i) + "]", mark{item.Line, item.Column}}
		}
		switch {
		case !d.plain(item, here):
			t.spoil()
		case item.Kind != yaml.ScalarNode || isNull(item):
			t.spoil()
			d.wrong(here, "%s", mismatch(item, "string", "want text"))
		default:
			t.list = append(t.list, listed{item.Value, here.mark})
		}
	}
}
