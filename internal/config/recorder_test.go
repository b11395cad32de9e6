package config

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/ledger"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Three nodes see the same files change; the log has each change once.
func TestRecorder(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	l := ledger.NewRedis(c, ledger.Options{})
	var nodes []*Recorder
	for range 3 {
		r := NewRecorder(l, nil)
		wg.Go(func() { r.Run(ctx) })
		nodes = append(nodes, r)
	}
	written := func() (out []string) {
		entries, err := l.Last(ctx, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, fmt.Sprintf("%s %s %s>%s %s", e.Who, e.What, e.Before, e.After, e.Why))
		}
		return out
	}
	settled := func() {
		for _, r := range nodes {
			eventually(t, "written", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return len(r.waiting) == 0
			})
		}
	}
	for _, change := range []Change{
		{Origin: "file /rules", After: "h1"},
		{Origin: "file /rules", Before: "h1", After: "h2"},
		{Origin: "file /rules", Before: "h2", Err: errors.New("rules.yaml:1:1: wrong")},
		{Origin: OriginPublished, Version: "7", Before: "h2", After: "h3"},
		{Origin: OriginPublished, Err: ErrNotPublished},
		{Origin: "file /rules", Before: "h2", After: "h1"},
	} {
		for _, r := range nodes {
			r.Changed(change)
		}
		settled()
	}
	want := []string{
		"file /rules rules.loaded >h1 ",
		"file /rules rules.loaded h1>h2 ",
		"file /rules rules.refused h2>h2 rules.yaml:1:1: wrong",
		"file /rules rules.loaded h2>h1 ",
	}
	if diff := cmp.Diff(want, written()); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
	if _, err := l.Verify(ctx); err != nil {
		t.Error(err)
	}
}
