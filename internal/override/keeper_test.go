package override

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/internal/ledger"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a keeper that runs, and what it last applied.
type node struct {
	*Keeper
	mu      sync.Mutex
	applied []string
	kept    []byte
	stop    func()
}

func startNode(t *testing.T, l *ledger.Ledger, kept []byte) *node {
	t.Helper()
	n := new(node)
	var err error
	n.Keeper, err = New(Options{
		Ledger: l, Kept: kept,
		Apply: func(all []*Override) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.applied = nil
			for _, o := range all {
				n.applied = append(n.applied, o.String())
			}
		},
		Keep: func(b []byte) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.kept = b
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { n.Run(ctx) })
	wg.Go(func() { l.Follow(ctx) })
	n.stop = func() { cancel(); wg.Wait() }
	return n
}

func (n *node) now() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.applied, "; ")
}

// auditLog returns what the audit log says, a line an entry.
func auditLog(t *testing.T, l *ledger.Ledger) (lines []string) {
	t.Helper()
	entries, err := l.Last(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", e.Who, e.What, e.On, e.Why))
	}
	return lines
}

// An override ends to the moment, by itself, and the log says so once, however many nodes there are.
func TestExpires(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l, err := ledger.OpenFile(dir, ledger.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		nodes := []*node{startNode(t, l, nil), startNode(t, l, nil), startNode(t, l, nil)}
		defer func() {
			for _, n := range nodes {
				n.stop()
			}
		}()
		o := Override{Rule: "shop.pro", Action: Limit, Requests: 20, Author: "ann", Reason: "ticket 7", Expires: time.Now().Add(time.Hour)}
		if _, _, err := nodes[0].Set(t.Context(), o, "ann", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := "limit 20 on shop.pro"
		for i, n := range nodes {
			if got := n.now(); got != want {
				t.Errorf("node %d: got %q, want %q", i, got, want)
			}
		}
		time.Sleep(time.Hour - time.Millisecond)
		synctest.Wait()
		if got := nodes[1].now(); got != want {
			t.Errorf("just before the end: got %q, want %q", got, want)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		for i, n := range nodes {
			if got := n.now(); got != "" {
				t.Errorf("node %d after the end: got %q, want none", i, got)
			}
		}
		wantLog := []string{
			"ann override.set shop.pro: ticket 7",
			"ratelimitd override.expired shop.pro: it ended 2000-01-01T01:00:00Z",
		}
		if diff := cmp.Diff(wantLog, auditLog(t, l)); diff != "" {
			t.Errorf("audit log (-want +got):\n%s", diff)
		}
	})
}

func TestSetAndRemove(t *testing.T) {
	t.Parallel()
	l, err := ledger.OpenFile(t.TempDir(), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k, err := New(Options{Ledger: l, Apply: func([]*Override) {}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	o := Override{Rule: "shop.pro", Action: Exempt, Author: "ann", Reason: "ticket 7", Expires: time.Now().Add(time.Hour)}
	set, e, err := k.Set(ctx, o, "ann", 0)
	if err != nil {
		t.Fatal(err)
	}
	o.Reason = "ticket 8"
	if again, _, err := k.Set(ctx, o, "bob", e.Seq); err != nil || again.ID != set.ID {
		t.Errorf("the same target again: got %v, %v, want it in place of %s", again, err, set.ID)
	}
	if _, _, err := k.Set(ctx, o, "bob", e.Seq); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("on a state that is no more: got %v, want %v", err, ledger.ErrConflict)
	}
	o.Author = ""
	if _, _, err := k.Set(ctx, o, "bob", 0); err == nil || err.Error() != "author: want who is responsible" {
		t.Errorf("without an author: got %v", err)
	}
	if _, err := k.Remove(ctx, set.ID, "bob", "", 0); err == nil {
		t.Error("removed without a reason")
	}
	if _, err := k.Remove(ctx, set.ID, "bob", "ticket 9", 0); err != nil {
		t.Error(err)
	}
	if _, err := k.Remove(ctx, set.ID, "bob", "ticket 9", 0); !errors.Is(err, ErrUnknown) {
		t.Errorf("removed twice: got %v, want %v", err, ErrUnknown)
	}
	want := []string{
		"ann override.set shop.pro: ticket 7", "bob override.set shop.pro: ticket 8", "bob override.removed shop.pro: ticket 9",
	}
	if diff := cmp.Diff(want, auditLog(t, l)); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

// Nodes on one Redis have the same overrides; one that starts while Redis is away has those of before.
func TestNodes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := ledger.NewRedis(server.Client(), ledger.Options{})
	here, there := startNode(t, l, nil), startNode(t, l, nil)
	o := Override{Network: "203.0.113.0/24", Action: Block, Author: "ann", Reason: "ticket 7", Expires: time.Now().Add(time.Hour)}
	set, _, err := here.Set(t.Context(), o, "ann", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := set.String()
	await(t, func() bool { return there.now() == want && here.now() == want })
	here.stop()
	there.stop()
	server.Stop()
	late := startNode(t, l, there.kept)
	defer late.stop()
	if got := late.now(); got != want {
		t.Errorf("started without Redis: got %q, want %q", got, want)
	}
}

// await polls until ok, for ten seconds.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("not within 10 s")
		}
	}
}

// Who has synced a keeper knows whether it lacks something.
func TestSync(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := ledger.NewRedis(server.Client(), ledger.Options{})
	follows := startNode(t, l, nil)
	defer follows.stop()
	idle, err := New(Options{Ledger: l, Apply: func([]*Override) {}}) // it does not run
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, k := range []*Keeper{follows.Keeper, idle} {
		if err := k.Sync(ctx); err != nil {
			t.Errorf("before there is anything: %v", err)
		}
	}
	o := Override{Rule: "shop.pro", Action: Limit, Requests: 20, Author: "ann", Reason: "ticket 7", Expires: time.Now().Add(time.Hour)}
	if _, _, err := idle.Set(ctx, o, "ann", 0); err != nil {
		t.Fatal(err)
	}
	if err := follows.Sync(ctx); err != nil || len(follows.Current()) != 1 {
		t.Errorf("who follows: got %v and %v, want the one", follows.Current(), err)
	}
	if err := idle.Sync(ctx); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("who does not: got %v, want %v", err, ledger.ErrUnavailable)
	}
	server.Stop()
	if err := follows.Sync(ctx); !errors.Is(err, ledger.ErrUnavailable) || len(follows.Current()) != 1 {
		t.Errorf("without Redis: got %v and %v, want the one and %v", follows.Current(), err, ledger.ErrUnavailable)
	}
}
