package rule

import (
	"os"
	"regexp"
	"testing"
)

// TestExamplesOfTheGuideLoad loads every example of docs/rules.md, and holds the schema against it.
func TestExamplesOfTheGuideLoad(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(guide, -1)
	if len(examples) < 5 {
		t.Fatalf("got %d examples, want at least 5", len(examples))
	}
	schema := shippedSchema(t)
	for _, e := range examples {
		if _, _, err := Load([]File{{"example.yaml", e[1]}}, Options{}); err != nil {
			t.Errorf("%s\n%v", e[1], err)
		}
		v, ok := asJSON(e[1])
		if err := schema.Validate(v); !ok || err != nil {
			t.Errorf("%s\nthe schema says %v", e[1], err)
		}
	}
}

// TestTheGuideNamesEveryKey checks that no key of the schema, and no lint, is missing from docs/rules.md.
func TestTheGuideNamesEveryKey(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	words := []string{LintIgnoredKey, LintNoEffect, LintEmptyDomain, LintEmptyValue, LintUnreachable, LintHiddenChildren, LintDanglingReplaces,
		LintDuplicateName, LintSlowQueue, LintShortQueue, LintAddressAsText, LintDanglingLookup}
	for _, m := range mappings {
		for key := range fields[m.t] {
			words = append(words, key)
		}
	}
	for _, w := range words {
		if !regexp.MustCompile("(?m)(^|[`{ ])" + regexp.QuoteMeta(w) + "[`:]").Match(guide) {
			t.Errorf("docs/rules.md does not name %s", w)
		}
	}
}
