package internal_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Pages link to each other and to the source; what they link to must be there.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && name != ".." || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			target, _, _ := strings.Cut(match[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", strings.TrimPrefix(name, "../"), target)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 10 {
		t.Errorf("got %d links in all pages, want those of docs/README.md at least", links)
	}
}

// The page that tells how the program is built tells of every room.
func TestArchitectureTellsOfEveryRoom(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range rooms {
		if !r.forTests && name != "e2e" && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/architecture.md does not tell of %s, which hides %s", name, r.hides)
		}
	}
}
