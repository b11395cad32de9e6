package engine_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
)

// loadRules compiles one file.
func loadRules(t testing.TB, yaml string) *rule.Snapshot {
	t.Helper()
	s, _, err := rule.Load([]rule.File{{Name: "rules.yaml", Data: []byte(yaml)}}, rule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newEngine returns an engine on yaml; what o lacks is made up for, with a store in memory.
func newEngine(t testing.TB, yaml string, o engine.Options) *engine.Engine {
	t.Helper()
	if o.Snapshots == nil {
		s := new(snapshots)
		s.Store(loadRules(t, yaml))
		o.Snapshots = s
	}
	if o.Store == nil {
		o.Store = memstore.New(memstore.Options{Now: o.Now})
	}
	if o.Keyer == nil {
		o.Keyer = newKeyer(t)
	}
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// parse reads a request in shorthand.
func parse(t testing.TB, text string) *engine.Request {
	t.Helper()
	req, err := shorthand.ParseRequest(text)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// decide returns the answer to a request in shorthand.
func decide(t testing.TB, e *engine.Engine, text string) *engine.Verdict {
	t.Helper()
	v := new(engine.Verdict)
	if err := e.Decide(t.Context(), parse(t, text), v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}
