package rule

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
)

const schemaFile = "../../docs/rules.schema.json"

// TestSchemaIsCurrent makes the JSON Schema from the types of schema.go, and compares it with the one that is shipped, or writes it with -rewrite.
func TestSchemaIsCurrent(t *testing.T) {
	t.Parallel()
	got := makeSchema(t)
	if *rewrite {
		if err := os.WriteFile(schemaFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run go generate ./internal/rule (-shipped +made):\n%s", diff)
	}
}

// makeSchema returns the JSON Schema, draft 7 since editors know no later one: one half for files of profile native, one for files that say they are
// of profile envoy.
func makeSchema(t *testing.T) []byte {
	t.Helper()
	comments := fieldComments(t)
	definitions := jsonschema.Definitions{}
	for _, p := range []Profile{Native, Envoy} {
		r := &jsonschema.Reflector{
			Anonymous:                  true,
			RequiredFromJSONSchemaTags: true,
			Namer:                      func(t reflect.Type) string { return definitionName(t, p) },
			Mapper:                     func(t reflect.Type) *jsonschema.Schema { return scalarSchema(t, p) },
			LookupComment:              func(t reflect.Type, field string) string { return comments[t.Name()+"."+field] },
		}
		maps.Copy(definitions, r.ReflectFromType(reflect.TypeFor[fileSpec]()).Definitions)
		for _, m := range mappings {
			finish(definitions[definitionName(m.t, p)], m.t, p)
		}
	}
	// Which half applies: the one of the profile that the file names. The reference's own files name none, and are read as native here: that
	// is where all but oddities are alike.
	isEnvoy := jsonschema.NewProperties()
	isEnvoy.Set("profile", &jsonschema.Schema{Const: "envoy"})
	root := &jsonschema.Schema{
		Version:     "http://json-schema.org/draft-07/schema#",
		Title:       "ratelimitd rules",
		Description: "The rules of one domain.",
		If:          &jsonschema.Schema{Type: "object", Properties: isEnvoy, Required: []string{"profile"}},
		Then:        &jsonschema.Schema{Ref: "#/$defs/" + definitionName(reflect.TypeFor[fileSpec](), Envoy)},
		Else:        &jsonschema.Schema{Ref: "#/$defs/" + definitionName(reflect.TypeFor[fileSpec](), Native)},
		Definitions: definitions,
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("$defs"), []byte("definitions")) // draft 7's name
}

func definitionName(t reflect.Type, p Profile) string {
	name := strings.TrimSuffix(t.Name(), "Spec")
	if p == Envoy && name != "" {
		return "envoy_" + name
	}
	return name
}

// fieldComments reads the comments of schema.go, by "type.Field".
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "schema.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					comments[spec.Name.Name+"."+name.Name] = strings.ReplaceAll(strings.TrimSpace(field.Doc.Text()), "\n", " ")
				}
			}
		}
		return false
	})
	return comments
}

// scalarSchema returns what a scalar of the schema may be in JSON; nil for a mapping.
func scalarSchema(t reflect.Type, p Profile) *jsonschema.Schema {
	types := func(names ...string) map[string]any { return map[string]any{"type": names} }
	enum := func(names []string) *jsonschema.Schema {
		s := &jsonschema.Schema{}
		for _, n := range names {
			s.Enum = append(s.Enum, n)
		}
		s.Enum = append(s.Enum, nil)
		return s
	}
	anyText := &jsonschema.Schema{Extras: types("string", "number", "boolean", "null")}
	switch t {
	case reflect.TypeFor[text](), reflect.TypeFor[unitName]():
		return anyText
	case reflect.TypeFor[valueText]():
		if p == Envoy {
			return anyText
		}
		return &jsonschema.Schema{Extras: types("string", "number", "boolean")}
	case reflect.TypeFor[limitName]():
		if p == Envoy {
			return anyText
		}
		return &jsonschema.Schema{Pattern: limitNamePattern, Minimum: "0", Extras: types("string", "number", "boolean", "null")}
	case reflect.TypeFor[count]():
		return &jsonschema.Schema{Extras: types("integer", "null")}
	case reflect.TypeFor[toggle]():
		return &jsonschema.Schema{Extras: types("boolean", "null")}
	case reflect.TypeFor[duration]():
		return &jsonschema.Schema{Pattern: durationPattern, Extras: types("string", "null")}
	case reflect.TypeFor[algorithmName]():
		return enum(algorithmNames)
	case reflect.TypeFor[failureMode]():
		return enum(failureModeNames)
	case reflect.TypeFor[fraction]():
		return &jsonschema.Schema{ExclusiveMinimum: "0", Maximum: "1", Extras: types("number", "null")}
	case reflect.TypeFor[scopeName]():
		return enum(scopeNames)
	case reflect.TypeFor[profileName]():
		return enum(profileNames)
	case reflect.TypeFor[texts]():
		return &jsonschema.Schema{
			Items:  &jsonschema.Schema{Extras: types("string", "number", "boolean")},
			Extras: types("string", "number", "boolean", "array", "null"),
		}
	case reflect.TypeFor[textMap]():
		return &jsonschema.Schema{
			AdditionalProperties: &jsonschema.Schema{Extras: types("string", "number", "boolean")},
			Extras:               types("object", "null"),
		}
	case reflect.TypeFor[metadata]():
		return &jsonschema.Schema{Extras: types("object", "null")}
	case reflect.TypeFor[unsupported]():
		never := *jsonschema.FalseSchema
		return &never
	}
	return nil
}

// finish adds to a mapping's schema what its Go type does not say.
func finish(s *jsonschema.Schema, t reflect.Type, p Profile) {
	for key, f := range fields[t] {
		property, ok := s.Properties.Get(key)
		switch {
		case !ok:
			panic("no property " + key)
		case f.unsupported:
			s.Properties.Delete(key) // so that editors do not offer it
		case slices.Contains(s.Required, key):
			property.MinLength = new(uint64)
			*property.MinLength = 1
			property.Extras["type"] = []string{"string", "number", "boolean"}
		case t.Field(f.index).Type == reflect.TypeFor[count]():
			property.Minimum, property.Maximum = jsonNumber(f.least), jsonNumber(f.most)
		case property.Type == "array":
			property.Type, property.Extras = "", map[string]any{"type": []string{"array", "null"}}
		case property.Ref != "":
			property.AnyOf = []*jsonschema.Schema{{Ref: property.Ref}, {Type: "null"}}
			property.Ref = ""
		}
	}
	if t == reflect.TypeFor[descriptorSpec]() {
		limits, _ := s.Properties.Get("limits")
		unlimited := jsonschema.NewProperties()
		unlimited.Set("unlimited", &jsonschema.Schema{Not: &jsonschema.Schema{Const: true}})
		limits.Items = &jsonschema.Schema{AllOf: []*jsonschema.Schema{limits.Items, {Properties: unlimited}}}
	}
	if t == reflect.TypeFor[limitSpec]() {
		finishLimit(s)
	}
	if p == Envoy && !ours[t] {
		for _, key := range slices.Sorted(maps.Keys(harmless)) {
			if _, ok := s.Properties.Get(key); !ok {
				s.Properties.Set(key, &jsonschema.Schema{Description: "No effect here."})
			}
		}
	}
}

// finishLimit says what a limit needs unless it is unlimited.
func finishLimit(s *jsonschema.Schema) {
	unlimited := jsonschema.NewProperties()
	unlimited.Set("unlimited", &jsonschema.Schema{Const: true})
	s.If = &jsonschema.Schema{Properties: unlimited, Required: []string{"unlimited"}}
	s.Then = jsonschema.TrueSchema
	var names []any
	anyCase := "^("
	for _, u := range unitNames {
		names = append(names, u)
		for _, r := range u {
			anyCase += "[" + string(r) + strings.ToUpper(string(r)) + "]"
		}
		anyCase += "|"
	}
	limited := jsonschema.NewProperties()
	limited.Set("requests_per_unit", &jsonschema.Schema{Type: "integer"})
	limited.Set("unit", &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Enum: names}, {Type: "string", Pattern: strings.TrimSuffix(anyCase, "|") + ")$"},
	}})
	s.Else = &jsonschema.Schema{Properties: limited, Required: []string{"requests_per_unit", "unit"}}
}

func jsonNumber(n uint32) json.Number {
	b, _ := json.Marshal(n)
	return json.Number(b)
}

var unitNames = []string{"second", "minute", "hour", "day", "week", "month", "year"}
