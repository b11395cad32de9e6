package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
)

// inProcess are the allocations of what no process shows by itself.
type inProcess struct{ match, decide float64 }

// fixed are rules that stay.
type fixed struct{ *rule.Snapshot }

func (f fixed) Current() *rule.Snapshot { return f.Snapshot }

// countAllocations counts those of a match and of a decision on the embedded store, by the rules of the bench.
func countAllocations(ctx context.Context) (inProcess, error) {
	snapshot, _, err := rule.Load([]rule.File{{Name: "rules.yaml", Data: []byte(rules)}}, rule.Options{})
	if err != nil {
		return inProcess{}, err
	}
	keyer, err := store.NewKeyer([]byte("sixteen or more bytes"))
	if err != nil {
		return inProcess{}, err
	}
	e, err := engine.New(engine.Options{
		Snapshots: fixed{snapshot}, Store: memstore.New(memstore.Options{}), Keyer: keyer, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return inProcess{}, err
	}
	entries := []rule.Entry{{Key: "key1", Value: "user"}}
	request := &engine.Request{Domain: "bench", Descriptors: []engine.Descriptor{{Entries: entries}}}
	verdict := new(engine.Verdict)
	domain := snapshot.Domain("bench")
	if domain.Match(entries) == nil {
		return inProcess{}, errors.New("the rules do not match what is asked")
	}
	const runs = 10_000
	var n inProcess
	n.match = testing.AllocsPerRun(runs, func() { domain.Match(entries) })
	n.decide = testing.AllocsPerRun(runs, func() {
		if failed := e.Decide(ctx, request, verdict); failed != nil {
			err = fmt.Errorf("decide: %w", failed)
		}
	})
	return n, err
}
