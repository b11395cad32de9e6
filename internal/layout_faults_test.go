package internal_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// The checks must see what they are there for: each file here breaks one rule.
func TestChecksSeeFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file, text string
		check            func([]source) []string
		want             string
	}{
		{
			"edge up", "internal/bucket/x.go", `package bucket; import "github.com/ratelimitd/ratelimitd/internal/engine"`,
			edgeFaults, "internal/bucket/x.go: internal/bucket may not import internal/engine",
		},
		{
			"edge for tests only", "internal/rule/x.go", `package rule; import "github.com/ratelimitd/ratelimitd/internal/redistest"`,
			edgeFaults, "internal/rule/x.go: internal/rule may not import internal/redistest",
		},
		{
			"no room", "internal/attic/x.go", `package attic`,
			edgeFaults, "internal/attic/x.go: package internal/attic is no room of the house: say in layout_test.go what it hides",
		},
		{
			"room gone", "internal/bucket/x.go", `package bucket`,
			edgeFaults, "room internal/engine has no Go file",
		},
		{
			"edge unused", "internal/engine/x.go", `package engine`,
			edgeFaults, "edge internal/engine → internal/rule is listed, but nothing uses it",
		},
		{
			"module unknown", "internal/rule/x.go", `package rule; import "example.com/left-pad"`,
			dependencyFaults, "internal/rule/x.go: example.com/left-pad is of no module listed in layout_test.go",
		},
		{
			"module in another room", "internal/rule/x.go", `package rule; import "github.com/spf13/cobra"`,
			dependencyFaults, "internal/rule/x.go: internal/rule may not import github.com/spf13/cobra",
		},
		{
			"nested module", "internal/engine/x.go", `package engine; import "go.opentelemetry.io/otel/sdk/trace"`,
			dependencyFaults, "internal/engine/x.go: internal/engine may not import go.opentelemetry.io/otel/sdk/trace",
		},
		{
			"module for tests", "internal/rule/x.go", `package rule; import "github.com/google/go-cmp/cmp"`,
			dependencyFaults, "internal/rule/x.go: github.com/google/go-cmp/cmp is for tests only",
		},
		{
			"module unused", "internal/rule/x.go", `package rule`,
			dependencyFaults, "module github.com/spf13/cobra is listed, but nothing imports it",
		},
		{
			"library in the arithmetic", "internal/bucket/x.go", `package bucket; import "go.uber.org/goleak"`,
			banFaults, "internal/bucket/x.go: imports go.uber.org/goleak, but the arithmetic needs the standard library only",
		},
		{
			"logger in the arithmetic", "internal/bucket/x.go", `package bucket; import "log/slog"`,
			banFaults, "internal/bucket/x.go: imports log/slog, but the arithmetic reads no context, logger or network",
		},
		{
			"protobuf in the engine", "internal/engine/x.go", `package engine; import "google.golang.org/protobuf/proto"`,
			banFaults, "internal/engine/x.go: imports google.golang.org/protobuf/proto, but proto types stop in transport",
		},
		{
			"store in the rules", "internal/rule/x.go", `package rule; import "github.com/ratelimitd/ratelimitd/internal/store/memstore"`,
			banFaults, "internal/rule/x.go: imports github.com/ratelimitd/ratelimitd/internal/store/memstore, but rules know no store",
		},
		{
			"rules in the limiter", "internal/limiter/x.go", `package limiter; import "github.com/ratelimitd/ratelimitd/internal/rule"`,
			banFaults, "internal/limiter/x.go: imports github.com/ratelimitd/ratelimitd/internal/rule, but tiers know charges, not rules",
		},
		{
			"pkg in internal", "internal/engine/x.go", `package engine; import "github.com/ratelimitd/ratelimitd/pkg/ratelimit"`,
			banFaults, "internal/engine/x.go: imports github.com/ratelimitd/ratelimitd/pkg/ratelimit, but pkg wraps internal, never the other way",
		},
		{
			"Redis in the engine", "internal/engine/x.go", `package engine; import "github.com/redis/go-redis/v9"`,
			banFaults, "internal/engine/x.go: imports github.com/redis/go-redis/v9, but Redis types stop in redisstore",
		},
		{"no package comment", "internal/engine/x.go", `package engine`, docFaults, "package internal/engine has 0 package comments, want 1"},
		{"empty file name", "internal/engine/helpers.go", `package engine`, nameFaults, `internal/engine/helpers.go: "helpers" does not say what it hides`},
		{"empty package name", "internal/util/x.go", `package util`, nameFaults, `internal/util/x.go: "util" does not say what it hides`},
		{"empty type name", "internal/engine/x.go", `package engine; type StoreManager struct{}`, nameFaults, `internal/engine/x.go: "Manager" does not say what it hides`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sources, err := readSources(fstest.MapFS{c.file: {Data: []byte(c.text)}})
			if err != nil {
				t.Fatal(err)
			}
			if faults := c.check(sources); !slices.ContainsFunc(faults, func(fault string) bool { return strings.HasPrefix(fault, c.want) }) {
				t.Errorf("got %q, want among them one that begins with %q", faults, c.want)
			}
		})
	}
}
