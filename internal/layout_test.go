package internal_test

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const modulePath = "github.com/ratelimitd/ratelimitd"

// A room is one package of ours: what it hides from the others, and which of ours it may import, each with the reason.
// Imports only go down; a new edge is a row here, and is reviewed as such.
type room struct {
	hides   string
	imports map[string]string
}

var rooms = map[string]room{
	"internal/bucket": {hides: "the arithmetic of limits", imports: nil},
	"internal/store": {hides: "nothing but names: the contract of taking charges", imports: map[string]string{
		"internal/bucket": "a charge is made on a limit",
	}},
	"internal/store/memstore": {hides: "buckets in this process: shards, eviction, memory", imports: map[string]string{
		"internal/bucket": "it keeps bucket states",
		"internal/store":  "it implements the contract",
	}},
	"internal/store/redisstore": {hides: "Redis: the script, its encoding, pipelining, errors", imports: map[string]string{
		"internal/bucket": "it sends limits to the script and embeds the script's source",
		"internal/store":  "it implements the contract",
	}},
	"internal/store/storetest": {hides: "what every store must pass", imports: map[string]string{
		"internal/bucket": "it makes limits",
		"internal/store":  "it drives the contract",
	}},
	"internal/redistest": {hides: "how a real redis-server is started for a test", imports: nil},
	"internal/rule": {hides: "the schema of rules, its compiler and the matcher", imports: map[string]string{
		"internal/bucket": "a rule compiles to limits",
	}},
	"internal/engine": {hides: "one decision: match, plan, take, verdict", imports: map[string]string{
		"internal/bucket": "it reads a limit's numbers into the verdict",
		"internal/rule":   "it matches descriptors",
		"internal/store":  "it takes charges",
	}},
	"internal/config": {hides: "where the current snapshot comes from", imports: map[string]string{
		"internal/rule": "it loads and swaps snapshots",
	}},
	"internal/transport": {hides: "the wire: proto types, gRPC, JSON, headers", imports: map[string]string{
		"internal/bucket": "units and Never in answers",
		"internal/engine": "it asks for verdicts",
		"internal/rule":   "entries of a request, the rules printed by /rlconfig",
		"internal/store":  "the origin of a decision in metadata",
	}},
	"internal/app": {hides: "the process: options, wiring, lifecycle, telemetry", imports: map[string]string{
		"internal/bucket":           "the limits of the cases that `ratelimitd test` runs",
		"internal/config":           "it starts the source of rules",
		"internal/engine":           "it builds the engine",
		"internal/rule":             "the default profile",
		"internal/store":            "the keyer and the store handed to the engine",
		"internal/store/memstore":   "the embedded store",
		"internal/store/redisstore": "the shared store",
		"internal/transport":        "it serves the ports",
	}},
	"cmd/ratelimitd": {hides: "flags, environment and exit codes", imports: map[string]string{
		"internal/app":            "serve is app.Run",
		"internal/bucket":         "units in printed rules",
		"internal/config":         "check and explain read the same files as serve",
		"internal/engine":         "explain and test decide in this process",
		"internal/rule":           "check prints rules and warnings",
		"internal/store":          "key prints a bucket's key",
		"internal/store/memstore": "test runs cases on a virtual clock",
		"internal/transport":      "call speaks the wire",
	}},
	"e2e": {hides: "nothing: tests with a real Envoy", imports: nil},
}

// In tests a package may import these as well.
var testImports = map[string]string{
	"internal/redistest":        "tests of what uses Redis start a real one",
	"internal/store/storetest":  "every store passes it",
	"internal/store/memstore":   "decisions are tested on a real store",
	"internal/store/redisstore": "decisions are tested on a real store",
}

// A dependency is one direct requirement of go.mod: why it is there, and the packages that may import it ("*" any).
type dependency struct {
	why      string
	in       []string
	testOnly bool
}

var dependencies = map[string]dependency{
	"github.com/dunglas/httpsfv": {
		why: "structured fields of the RateLimit headers", in: []string{"internal/transport"},
	},
	"github.com/envoyproxy/go-control-plane/envoy": {
		why: "Envoy's protos, never declared again", in: []string{"internal/transport", "cmd/ratelimitd"},
	},
	"github.com/google/go-cmp": {
		why: "diffs of structs in tests", in: []string{"*"}, testOnly: true,
	},
	"github.com/invopop/jsonschema": {
		why: "the rules' JSON Schema from their Go types", in: []string{"internal/rule"},
	},
	"github.com/prometheus/client_golang": {
		why: "metrics, through the registerer a package is given", in: []string{"*"},
	},
	"github.com/redis/go-redis/v9": {
		why: "the Redis client", in: []string{"internal/store/redisstore", "internal/redistest", "internal/app"},
	},
	"github.com/santhosh-tekuri/jsonschema/v6": {
		why: "an independent validator that must agree with the loader", in: []string{"internal/rule"}, testOnly: true,
	},
	"github.com/spf13/cobra": {
		why: "the command line", in: []string{"cmd/ratelimitd"},
	},
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc": {
		why: "server spans of gRPC calls", in: []string{"internal/transport", "internal/app"},
	},
	"go.opentelemetry.io/otel": {
		why: "attributes and propagation of spans", in: []string{"internal/engine", "internal/store/redisstore", "internal/transport", "internal/app"},
	},
	"go.opentelemetry.io/otel/trace": {
		why: "spans", in: []string{"internal/engine", "internal/store/redisstore", "internal/transport", "internal/app"},
	},
	"go.opentelemetry.io/otel/sdk": {
		why: "the tracer provider", in: []string{"internal/app"},
	},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc": {
		why: "spans sent by OTLP over gRPC", in: []string{"internal/app"},
	},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp": {
		why: "spans sent by OTLP over HTTP", in: []string{"internal/app"},
	},
	"go.uber.org/goleak": {
		why: "no goroutine outlives its test", in: []string{"*"}, testOnly: true,
	},
	"go.yaml.in/yaml/v4": {
		why: "rules, with the line and column of each node", in: []string{"internal/rule", "cmd/ratelimitd"},
	},
	"google.golang.org/grpc": {
		why: "the transport of Envoy's services", in: []string{"internal/transport", "internal/app", "cmd/ratelimitd"},
	},
	"google.golang.org/protobuf": {
		why: "protowire for our codec, protojson for /json", in: []string{"internal/transport", "cmd/ratelimitd"},
	},
}

// Names that say nothing about what a package, file or type hides.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "manager", "types", "base", "impl"}

// A source is one Go file as the house sees it.
type source struct {
	name    string // slash-separated, below the module's root
	test    bool
	doc     bool // it has a package comment
	imports []string
}

func (s source) room() string { return path.Dir(s.name) }

func TestHouse(t *testing.T) {
	t.Parallel()
	sources := readSources(t, os.DirFS(".."))
	for _, fault := range slices.Concat(edgeFaults(sources), dependencyFaults(sources), docFaults(sources), nameFaults(sources)) {
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
		t.Errorf("go.mod replaces %s: a library that imports this module would not get the replacement", r.Old.Path)
	}
	direct := map[string]string{}
	for _, r := range mod.Require {
		if !r.Indirect {
			direct[r.Path] = "listed"
		}
	}
	listed := map[string]string{}
	for name := range dependencies {
		listed[name] = "listed"
	}
	if diff := cmp.Diff(listed, direct); diff != "" {
		t.Errorf("direct requirements of go.mod (-listed here +in go.mod):\n%s", diff)
	}
}

// edgeFaults reports imports between packages of ours that are not in rooms, packages that are no room, and rooms and
// edges that nothing uses any more.
func edgeFaults(sources []source) []string {
	var faults []string
	seen := map[string]bool{}
	used := map[[2]string]bool{}
	for _, s := range sources {
		from := s.room()
		seen[from] = true
		r, ok := rooms[from]
		if !ok && s.name != "internal/layout_test.go" {
			faults = append(faults, fmt.Sprintf("%s: package %s is no room of the house; say in internal/layout_test.go what it hides", s.name, from))
			continue
		}
		for _, imported := range s.imports {
			to, ours := strings.CutPrefix(imported, modulePath+"/")
			if !ours || to == from {
				continue
			}
			used[[2]string{from, to}] = true
			_, allowed := r.imports[to]
			if _, inTests := testImports[to]; s.test && (inTests || from == "e2e") {
				allowed = true
			}
			if !allowed {
				faults = append(faults, fmt.Sprintf("%s: %s may not import %s", s.name, from, to))
			}
		}
	}
	for from, r := range rooms {
		if !seen[from] {
			faults = append(faults, fmt.Sprintf("room %s has no Go file", from))
			continue
		}
		for to := range r.imports {
			if !used[[2]string{from, to}] {
				faults = append(faults, fmt.Sprintf("edge %s → %s is allowed but nothing uses it", from, to))
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// dependencyFaults reports imports of other modules that are not in dependencies, and dependencies that nothing imports.
func dependencyFaults(sources []source) []string {
	var faults []string
	used := map[string]bool{}
	for _, s := range sources {
		for _, imported := range s.imports {
			if !strings.Contains(strings.Split(imported, "/")[0], ".") || strings.HasPrefix(imported, modulePath+"/") {
				continue
			}
			name, ok := moduleOf(imported)
			if !ok {
				faults = append(faults, fmt.Sprintf("%s: %s is of no dependency listed in internal/layout_test.go", s.name, imported))
				continue
			}
			used[name] = true
			d := dependencies[name]
			switch {
			case d.testOnly && !s.test:
				faults = append(faults, fmt.Sprintf("%s: %s is for tests only", s.name, imported))
			case s.test || slices.Contains(d.in, "*") || slices.Contains(d.in, s.room()):
			default:
				faults = append(faults, fmt.Sprintf("%s: %s may not import %s", s.name, s.room(), imported))
			}
		}
	}
	for name := range dependencies {
		if !used[name] {
			faults = append(faults, fmt.Sprintf("dependency %s is listed but nothing imports it", name))
		}
	}
	for _, s := range sources {
		if s.test {
			continue
		}
		for _, imported := range s.imports {
			if why, bad := forbidden(s.room(), imported); bad {
				faults = append(faults, fmt.Sprintf("%s: imports %s: %s", s.name, imported, why))
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// forbidden reports what the lists above must never come to allow.
func forbidden(from, imported string) (why string, bad bool) {
	proto := strings.HasPrefix(imported, "google.golang.org/protobuf") || strings.HasPrefix(imported, "google.golang.org/grpc") ||
		strings.HasPrefix(imported, "github.com/envoyproxy/")
	redis := strings.HasPrefix(imported, "github.com/redis/")
	switch {
	case from == "internal/bucket" && strings.Contains(strings.Split(imported, "/")[0], "."):
		return "the arithmetic needs the standard library only", true
	case from == "internal/rule" && strings.HasPrefix(imported, modulePath+"/internal/store"):
		return "rules know no store", true
	case from == "internal/limiter" && imported == modulePath+"/internal/rule":
		return "the limiter knows no rules", true
	case strings.HasPrefix(from, "internal/") && strings.HasPrefix(imported, modulePath+"/pkg/"):
		return "pkg wraps internal, never the other way", true
	case proto && !slices.Contains([]string{"internal/transport", "internal/admin", "internal/app"}, from) && strings.HasPrefix(from, "internal/"):
		return "proto types stop in transport", true
	case redis && !slices.Contains([]string{"internal/store/redisstore", "internal/redistest", "internal/config", "internal/app"}, from):
		return "Redis types stop in redisstore", true
	}
	return "", false
}

// docFaults reports packages that have not exactly one package comment.
func docFaults(sources []source) []string {
	docs := map[string][]string{}
	for _, s := range sources {
		if s.test {
			continue
		}
		docs[s.room()] = append(docs[s.room()], "")
		if s.doc {
			docs[s.room()][len(docs[s.room()])-1] = s.name
		}
	}
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		commented := slices.DeleteFunc(docs[name], func(file string) bool { return file == "" })
		if len(commented) != 1 {
			faults = append(faults, fmt.Sprintf("package %s has %d package comments %v, want 1", name, len(commented), commented))
		}
	}
	return faults
}

// nameFaults reports packages and files that are named for nothing in particular.
func nameFaults(sources []source) []string {
	var faults []string
	for _, s := range sources {
		name := strings.TrimSuffix(strings.TrimSuffix(s.name, ".go"), "_test")
		for _, word := range strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '_' }) {
			if slices.Contains(emptyNames, word) {
				faults = append(faults, fmt.Sprintf("%s: %q does not say what it hides", s.name, word))
			}
		}
	}
	return faults
}

// moduleOf returns the listed dependency that holds the package, the longest path first since modules nest.
func moduleOf(imported string) (string, bool) {
	for dir := imported; dir != "."; dir = path.Dir(dir) {
		if _, ok := dependencies[dir]; ok {
			return dir, true
		}
	}
	return "", false
}

func readSources(t *testing.T, root fs.FS) []source {
	t.Helper()
	var sources []source
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (name != "." && strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		s := source{name: name, test: strings.HasSuffix(name, "_test.go"), doc: file.Doc != nil}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, imported)
		}
		sources = append(sources, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}
