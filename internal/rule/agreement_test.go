package rule

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"
)

// shippedSchema compiles docs/rules.schema.json as an editor would.
func shippedSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	f, err := os.Open(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("rules.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile("rules.schema.json")
}

// malformed reports whether the loader finds a file wrong in its form, and all it finds.
func malformed(f File) (bool, error) {
	_, _, err := Load([]File{f}, Options{})
	var errs Errors
	errors.As(err, &errs)
	for _, e := range errs {
		if e.structural {
			return true, err
		}
	}
	return false, err
}

// asJSON reads a YAML file as an editor does before it asks the schema, ok if it can be read so at all: no aliases, no tags, no key twice.
func asJSON(data []byte) (v any, ok bool) {
	var doc yaml.Node
	l, err := yaml.NewLoader(strings.NewReader(string(data)))
	if err != nil || l.Load(&doc) != nil || len(doc.Content) != 1 {
		return nil, false
	}
	var more yaml.Node
	if l.Load(&more) == nil {
		return nil, false
	}
	return nodeAsJSON(doc.Content[0])
}

func nodeAsJSON(n *yaml.Node) (any, bool) {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			k := n.Content[i]
			v, ok := nodeAsJSON(n.Content[i+1])
			if _, twice := m[k.Value]; !ok || twice || k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
				return nil, false
			}
			m[k.Value] = v
		}
		return m, true
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			v, ok := nodeAsJSON(item)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return nil, true
		case "!!str", "!!bool", "!!timestamp":
			if on, ok := boolean(n); ok {
				return on, true
			}
			return n.Value, true
		case "!!int", "!!float":
			// Other spellings of numbers than plain decimals are the loader's alone to judge.
			return json.Number(n.Value), json.Valid([]byte(n.Value)) && !strings.ContainsAny(n.Value, "eE")
		}
	}
	return nil, false
}

// TestSchemaAgreesOnTestdata holds the schema against all our rule files, good and bad.
func TestSchemaAgreesOnTestdata(t *testing.T) {
	t.Parallel()
	schema := shippedSchema(t)
	var compared int
	err := filepath.WalkDir("testdata", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".json" {
			return err
		}
		for _, f := range files(t, path) {
			v, ok := asJSON(f.Data)
			if !ok {
				continue
			}
			compared++
			bad, loadErr := malformed(f)
			if schemaErr := schema.Validate(v); (schemaErr != nil) != bad {
				t.Errorf("%s: the schema says\n%v\nand the loader\n%v", path, schemaErr, loadErr)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if compared < 100 {
		t.Errorf("got %d files to compare, want at least 100", compared)
	}
}

// TestSchemaAgreesOnRandomFiles holds the schema against the loader on files that are nearly right.
func TestSchemaAgreesOnRandomFiles(t *testing.T) {
	t.Parallel()
	schema := shippedSchema(t)
	agree := func(t *rapid.T) {
		doc := genFile(t)
		data, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
		if err != nil {
			t.Fatal(err)
		}
		bad, loadErr := malformed(File{"rules.json", data})
		if schemaErr := schema.Validate(v); (schemaErr != nil) != bad {
			t.Fatalf("%s\nthe schema says\n%v\nand the loader\n%v", data, schemaErr, loadErr)
		}
	}
	for range 30 { // of 100 files each, unless -rapid.checks says otherwise
		rapid.Check(t, agree)
	}
}

// genFile draws a file that is mostly right, then spoils it in up to three places.
func genFile(t *rapid.T) any {
	doc := any(genMapping(t, map[string]*rapid.Generator[any]{
		"profile":  oneOfAny("native", "envoy", "envoy", nil),
		"defaults": nested(func(t *rapid.T) any { return genMapping(t, defaultsGenerators) }),
		"blocklist": nested(func(t *rapid.T) any {
			return genList(t, func() any { return genMapping(t, blockGenerators, "key", textGenerator) })
		}),
		"lookups": nested(func(t *rapid.T) any {
			return genList(t, func() any {
				m := genMapping(t, lookupGenerators, "from", textGenerator)
				m["to"] = textGenerator.Draw(t, "to")
				return m
			})
		}),
		"descriptors": rapid.Custom(func(t *rapid.T) any { return genList(t, func() any { return genDescriptor(t, 0) }) }),
	}, "domain", rapid.Just(any("shop"))))
	for range rapid.IntRange(0, 3).Draw(t, "mistakes") {
		doc = spoil(t, doc)
	}
	return doc
}

func oneOfAny(values ...any) *rapid.Generator[any] { return rapid.SampledFrom(values) }

func nested(f func(*rapid.T) any) *rapid.Generator[any] { return rapid.Custom(f) }

var (
	textGenerator   = oneOfAny("a", "b*", "", "*", "10.0.0.1", 15, 1.5, true)
	flagGenerator   = oneOfAny(true, false, nil)
	nameGenerator   = oneOfAny("login", "a.b-c_9", "Login", "", 7, true, nil)
	numberGenerator = oneOfAny(0, 1, 5, 1000, 4294967295)
)

var fractionGenerator = oneOfAny(0.1, 1, 0.25, 0, 1.5, 0.1234567, nil)

var defaultsGenerators = map[string]*rapid.Generator[any]{
	"local_fraction":     fractionGenerator,
	"algorithm":          oneOfAny("gcra", "fixed_window", "token_bucket"),
	"on_backend_failure": oneOfAny("fail_open", "local_strict", "fail_closed"),
	"refunds":            flagGenerator,
}

var blockGenerators = map[string]*rapid.Generator[any]{
	"value":  textGenerator,
	"any_of": oneOfAny("a", 7, []any{"a", 1.5, true}),
	"cidr":   oneOfAny("10.0.0.0/8", []any{"10.0.0.0/8", "::1"}),
	"prefix": textGenerator,
	"suffix": textGenerator,
	"reason": oneOfAny("ticket 4711", nil, 4711),
}

var lookupGenerators = map[string]*rapid.Generator[any]{
	"default":     oneOfAny("free", 5, nil),
	"values":      oneOfAny(nil, map[string]any{}, map[string]any{"a": "b", "1": 2, "c": true}),
	"values_file": oneOfAny("keys.csv", nil),
}

var limitGenerators = map[string]*rapid.Generator[any]{
	"name":               nameGenerator,
	"algorithm":          oneOfAny("gcra", "fixed_window", "leaky_bucket", "sliding_log"),
	"unit_multiplier":    numberGenerator,
	"unlimited":          oneOfAny(true, false, false, nil),
	"burst":              numberGenerator,
	"debt":               numberGenerator,
	"max_delay":          oneOfAny("5ms", "0s", "1.5h", "1m2s", 5, "", "-1s"),
	"calendar":           oneOfAny("UTC", "Mars/Olympus"),
	"local_fraction":     fractionGenerator,
	"scope":              oneOfAny("shared", "node", nil),
	"refunds":            flagGenerator,
	"on_backend_failure": oneOfAny("fail_open", "fail_closed"),
	"replaces": nested(func(t *rapid.T) any {
		return genList(t, func() any { return map[string]any{"name": nameGenerator.Draw(t, "replaced")} })
	}),
}

func genLimit(t *rapid.T) any {
	m := genMapping(t, limitGenerators, "requests_per_unit", numberGenerator)
	m["unit"] = oneOfAny("second", "MINUTE", "Day", "fortnight", nil, 5).Draw(t, "unit")
	return m
}

func genDescriptor(t *rapid.T, depth int) any {
	m := genMapping(t, map[string]*rapid.Generator[any]{
		"value":           textGenerator,
		"any_of":          oneOfAny(nil, "a", 7, []any{"a", "b"}, []any{"c", 1.5, true}, []any{}, []any{"d", "d"}),
		"cidr":            oneOfAny("10.0.0.0/8", []any{"10.0.0.0/8", "::1"}, "x"),
		"prefix":          textGenerator,
		"suffix":          oneOfAny("a", nil, 5),
		"regex":           oneOfAny("a+", "(", ".*"),
		"partition":       oneOfAny("a", "b*", nil),
		"shadow_mode":     flagGenerator,
		"quota_mode":      flagGenerator,
		"quota_group":     nameGenerator,
		"detailed_metric": flagGenerator,
		"value_to_metric": flagGenerator,
		"share_threshold": flagGenerator,
		"normalize": nested(func(t *rapid.T) any {
			return genMapping(t, map[string]*rapid.Generator[any]{"ipv4": oneOfAny(0, 1, 32, 33), "ipv6": oneOfAny(1, 64, 128, 129)})
		}),
		"metadata":   oneOfAny(nil, map[string]any{}, map[string]any{"a": []any{1, "x", nil}}),
		"rate_limit": rapid.Custom(genLimit),
		"limits":     nested(func(t *rapid.T) any { return genList(t, func() any { return genLimit(t) }) }),
	}, "key", textGenerator)
	if depth < 2 && rapid.Bool().Draw(t, "deeper") {
		m["descriptors"] = genList(t, func() any { return genDescriptor(t, depth+1) })
	}
	return m
}

// genMapping draws some of the keys, and the one that must be there.
func genMapping(t *rapid.T, keys map[string]*rapid.Generator[any], must ...any) map[string]any {
	m := map[string]any{}
	if len(must) == 2 {
		m[must[0].(string)] = must[1].(*rapid.Generator[any]).Draw(t, must[0].(string))
	}
	for _, key := range sortedKeys(keys) {
		if rapid.IntRange(0, 3).Draw(t, "has "+key) == 0 {
			m[key] = keys[key].Draw(t, key)
		}
	}
	return m
}

func genList(t *rapid.T, item func() any) any {
	list := []any{}
	for range rapid.IntRange(0, 3).Draw(t, "items") {
		list = append(list, item())
	}
	return list
}

// spoil changes one place of a document: its type, a key that is none here, a key taken out.
func spoil(t *rapid.T, v any) any {
	wrong := oneOfAny(nil, 0, -1, 2.5, 4294967296, true, "", "x", []any{}, []any{"x"}, []any{nil}, map[string]any{}, map[string]any{"x": 1})
	switch v := v.(type) {
	case map[string]any:
		keys := sortedKeys(v)
		switch choice := rapid.IntRange(0, 9).Draw(t, "spoil"); {
		case choice == 0:
			return wrong.Draw(t, "wrong")
		case choice == 1 || len(keys) == 0:
			key := rapid.SampledFrom([]string{"x", "unit", "rate_limit", "requests_per_unit", "domain", "key", "value", "burst", "lease", "shards",
				"blocklist", "lookups", "values", "from", "any_of", "reason", "scope", "limits", "descriptors", "shadow_mode", "name", "unlimited", "profile", "local_fraction"}).Draw(t, "stray")
			v[key] = wrong.Draw(t, "wrong")
		case choice == 2:
			delete(v, rapid.SampledFrom(keys).Draw(t, "missing"))
		default:
			key := rapid.SampledFrom(keys).Draw(t, "into")
			v[key] = spoil(t, v[key])
		}
		return v
	case []any:
		if len(v) > 0 && rapid.IntRange(0, 4).Draw(t, "spoil") > 0 {
			i := rapid.IntRange(0, len(v)-1).Draw(t, "item")
			v[i] = spoil(t, v[i])
			return v
		}
	}
	return wrong.Draw(t, "wrong")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
