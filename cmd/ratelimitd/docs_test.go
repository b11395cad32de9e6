package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cases"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// docs/cli.md lists every flag of serve with its default, and every command.
func TestCommandLineIsDocumented(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (?:`([^`]*)`)? ?\\|").FindAllStringSubmatch(doc, -1) {
		documented[row[1]] = row[2]
	}
	flags := map[string]string{}
	serveCommand().Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = f.DefValue })
	if diff := cmp.Diff(flags, documented); diff != "" {
		t.Errorf("docs/cli.md does not match the flags of serve (-flags +documented):\n%s", diff)
	}
	for _, cmd := range newRoot().Commands() {
		if !strings.Contains(doc, "\nratelimitd "+cmd.Name()+" ") {
			t.Errorf("docs/cli.md does not list the command %s", cmd.Name())
		}
	}
}

// The cases that docs/cli.md and the help of test show are cases, and hold under the example rules.
func TestDocumentedCases(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	fromDoc := regexp.MustCompile("(?s)```yaml\n(start:.*?)```").FindSubmatch(doc)
	fromHelp := regexp.MustCompile(`(?s)\n  (start:.*?)\n\n`).FindStringSubmatch(testCommand().Long)
	if fromDoc == nil || fromHelp == nil {
		t.Fatal("no cases are shown")
	}
	shop, err := os.ReadFile(filepath.Join("..", "..", "examples", "rules", "shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rules, _, err := rule.Load([]rule.File{{Name: "shop.yaml", Data: shop}}, rule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"docs/cli.md": string(fromDoc[1]),
		"help":        strings.ReplaceAll(fromHelp[1], "\n  ", "\n"),
	} {
		set, err := cases.Parse(name, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		results, err := set.Run(t.Context(), rules)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, r := range results {
			for _, f := range r.Failures {
				t.Error(f)
			}
		}
	}
}
