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
