package rule

// Step is one entry's step down a domain's tree.
type Step struct {
	Node      string // where it led, as in Rule.Path: key or key_value
	Kind      StepKind
	File      string
	Line, Col int
	Rule      *Rule // nil: a node that only leads to others
}

// StepKind says why an entry led to a node.
type StepKind string

// The kinds.
const (
	StepExact    StepKind = "exact"    // key and value are the node's
	StepWildcard StepKind = "wildcard" // they match its pattern
	StepKeyOnly  StepKind = "key only" // the node has that key and no value
	StepAnyOf    StepKind = "any_of"   // the value is one of the node's
	StepCIDR     StepKind = "cidr"     // it is an address in one of the node's networks
	StepRegex    StepKind = "regex"    // it matches the node's regex
)

// Steps is Match told step by step, for people: one Step for each entry that led to a node, up to the first that led nowhere. Match returns a rule if there are as
// many steps as entries and the last has one. It allocates.
func (d *Domain) Steps(entries []Entry) []Step {
	var steps []Step
	n := &d.root
	for _, e := range entries {
		if n.children == nil {
			break
		}
		next := n.children.next(e)
		if next == nil {
			break
		}
		from := next.source
		l := &from.path[len(from.path)-1]
		s := Step{Node: l.name(), Kind: StepKeyOnly, File: from.file, Line: from.line, Col: from.col, Rule: next.found()}
		switch {
		case l.match != nil:
			s.Kind = l.match.kind
		case l.key == e.Key && l.value == e.Value && l.value != "", d.Profile == Envoy && l.name() == e.Key+"_"+e.Value:
			s.Kind = StepExact
		case n.children.wild(e) == next:
			s.Kind = StepWildcard
		}
		steps = append(steps, s)
		n = next
	}
	return steps
}
