package internal_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A source is one Go file as the house sees it.
type source struct {
	name      string // slash-separated, below the module's root
	test      bool
	doc       bool // it has a package comment
	generated bool
	imports   []string
	types     []string // names of the types it declares
}

func (s source) room() string { return path.Dir(s.name) }

func TestHouse(t *testing.T) {
	t.Parallel()
	sources, err := readSources(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) < len(rooms) {
		t.Fatalf("read %d files, fewer than there are rooms", len(sources))
	}
	for _, fault := range slices.Concat(edgeFaults(sources), dependencyFaults(sources), banFaults(sources), docFaults(sources), nameFaults(sources)) {
		t.Error(fault)
	}
}

func TestGoMod(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []struct{ Old struct{ Path string } }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != modulePath {
		t.Errorf("got module %s, want %s", mod.Module.Path, modulePath)
	}
	for _, r := range mod.Replace {
		t.Errorf("go.mod replaces %s: who imports this module would not get the replacement", r.Old.Path)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	slices.Sort(direct)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(dependencies)), direct); diff != "" {
		t.Errorf("direct requirements of go.mod (-listed in layout_test.go +in go.mod):\n%s", diff)
	}
}

// edgeFaults reports packages that are no room, imports between ours that are no edge, and rooms and edges of the list
// that are not there any more.
func edgeFaults(sources []source) []string {
	var faults []string
	seen := map[string]bool{}
	used := map[[2]string]bool{}
	for _, s := range sources {
		from := s.room()
		seen[from] = true
		r, ok := rooms[from]
		if !ok && from != "internal" {
			faults = append(faults, fmt.Sprintf("%s: package %s is no room of the house: say in layout_test.go what it hides", s.name, from))
			continue
		}
		for _, imported := range s.imports {
			to, ours := strings.CutPrefix(imported, modulePath+"/")
			if !ours || to == from {
				continue
			}
			if !s.test {
				used[[2]string{from, to}] = true
			}
			_, edge := r.imports[to]
			_, inTests := testImports[to]
			if edge || s.test && inTests {
				continue
			}
			faults = append(faults, fmt.Sprintf("%s: %s may not import %s", s.name, from, to))
		}
	}
	for from, r := range rooms {
		if !seen[from] {
			faults = append(faults, fmt.Sprintf("room %s has no Go file", from))
			continue
		}
		for to := range r.imports {
			if !used[[2]string{from, to}] {
				faults = append(faults, fmt.Sprintf("edge %s → %s is listed, but nothing uses it", from, to))
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// dependencyFaults reports imports of other modules that the list does not allow, and modules of the list that nothing
// imports.
func dependencyFaults(sources []source) []string {
	var faults []string
	used := map[string]bool{}
	for _, s := range sources {
		for _, imported := range s.imports {
			// A path whose first part has no dot is the standard library's.
			if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") || strings.HasPrefix(imported, modulePath+"/") {
				continue
			}
			name, ok := dependencyOf(imported)
			d := dependencies[name]
			used[name] = true
			switch {
			case !ok:
				faults = append(faults, fmt.Sprintf("%s: %s is of no module listed in layout_test.go", s.name, imported))
			case s.test || rooms[s.room()].forTests:
			case d.testOnly:
				faults = append(faults, fmt.Sprintf("%s: %s is for tests only", s.name, imported))
			case !slices.Contains(d.in, "*") && !slices.Contains(d.in, s.room()):
				faults = append(faults, fmt.Sprintf("%s: %s may not import %s", s.name, s.room(), imported))
			}
		}
	}
	for name := range dependencies {
		if !used[name] {
			faults = append(faults, fmt.Sprintf("module %s is listed, but nothing imports it", name))
		}
	}
	slices.Sort(faults)
	return faults
}

// dependencyOf returns the listed module that holds a package; modules nest, so the longest path that fits.
func dependencyOf(imported string) (string, bool) {
	for dir := imported; dir != "."; dir = path.Dir(dir) {
		if _, ok := dependencies[dir]; ok {
			return dir, true
		}
	}
	return "", false
}

func banFaults(sources []source) []string {
	var faults []string
	within := func(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
	for _, s := range sources {
		for _, b := range bans {
			if s.test || !within(s.room(), b.in) || slices.ContainsFunc(b.except, func(dir string) bool { return within(s.room(), dir) }) {
				continue
			}
			for _, imported := range s.imports {
				if slices.ContainsFunc(b.of, func(dir string) bool {
					return within(imported, dir) || strings.HasSuffix(dir, ".") && strings.HasPrefix(imported, dir) || strings.HasSuffix(dir, "/") && strings.HasPrefix(imported, dir)
				}) {
					faults = append(faults, fmt.Sprintf("%s: imports %s, but %s", s.name, imported, b.why))
				}
			}
		}
	}
	return faults
}

// docFaults reports packages that have not exactly one package comment, save generated ones.
func docFaults(sources []source) []string {
	commented := map[string]int{}
	for _, s := range sources {
		if s.test || s.generated {
			continue
		}
		commented[s.room()] += 0
		if s.doc {
			commented[s.room()]++
		}
	}
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(commented)) {
		if n := commented[name]; n != 1 {
			faults = append(faults, fmt.Sprintf("package %s has %d package comments, want 1", name, n))
		}
	}
	return faults
}

// nameFaults reports packages, files and types that are named for nothing in particular.
func nameFaults(sources []source) []string {
	var faults []string
	for _, s := range sources {
		words := strings.FieldsFunc(strings.TrimSuffix(s.name, ".go"), func(r rune) bool { return r == '/' || r == '_' })
		for _, name := range s.types {
			words = append(words, camelWords(name)...)
		}
		for _, word := range words {
			if slices.Contains(emptyWords, strings.ToLower(word)) {
				faults = append(faults, fmt.Sprintf("%s: %q does not say what it hides", s.name, word))
			}
		}
	}
	return faults
}

// camelWords splits "StoreManager" into "Store" and "Manager".
func camelWords(name string) []string {
	var words []string
	start := 0
	for i, r := range name {
		if i > start && 'A' <= r && r <= 'Z' {
			words = append(words, name[start:i])
			start = i
		}
	}
	return append(words, name[start:])
}

// readSources reads every Go file that the go command would build or test.
func readSources(root fs.FS) ([]source, error) {
	var sources []source
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), "_") || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() && name != "." && otherModule(root, name):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		s, err := parseSource(name, text)
		sources = append(sources, s)
		return err
	})
	return sources, err
}

// otherModule reports whether a directory is a Go module of its own, whose libraries are not in our go.mod.
func otherModule(root fs.FS, dir string) bool {
	_, err := fs.Stat(root, path.Join(dir, "go.mod"))
	return err == nil
}

func parseSource(name string, text []byte) (source, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	s := source{name: name, test: strings.HasSuffix(name, "_test.go"), doc: file.Doc != nil, generated: ast.IsGenerated(file)}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return source{}, err
		}
		s.imports = append(s.imports, imported)
	}
	for _, decl := range file.Decls {
		if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.TYPE {
			for _, spec := range gen.Specs {
				s.types = append(s.types, spec.(*ast.TypeSpec).Name.Name)
			}
		}
	}
	return s, nil
}
