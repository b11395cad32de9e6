package redisstore_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

func wantNodes(t *testing.T, what string, s *redisstore.Store, want int) {
	t.Helper()
	if got, err := s.Nodes(t.Context()); err != nil || got != want {
		t.Errorf("%s: got %d nodes (%v), want %d", what, got, err, want)
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	b := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	wantNodes(t, "the first", a, 1)
	wantNodes(t, "again", a, 1)
	wantNodes(t, "the second", b, 2)
	wantNodes(t, "the first once more", a, 2)
	if ttl := server.Client().PTTL(t.Context(), "rl1:nodes").Val(); ttl <= 0 || ttl > 10*time.Second {
		t.Errorf("time to live: got %v, want at most 10 s", ttl)
	}
	if err := b.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNodes(t, "alone again", a, 1)
	if err := a.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := server.Client().Exists(t.Context(), "rl1:nodes").Val(); n != 0 {
		t.Errorf("keys when all have left: got %d, want 0", n)
	}
}

// TestNodesHeal puts nonsense and another type where the nodes are, and a node that is silent.
func TestNodesHeal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	silent := "a silent node..." + string(make([]byte, 8)) // alive until 1970
	late := "from the future." + "\xff\xff\xff\xff\xff\xff\x0f\x00"
	for name, command := range map[string][]any{
		"nonsense": {"set", "rl1:nodes", "nonsense"}, "empty": {"set", "rl1:nodes", ""},
		"a list": {"rpush", "rl1:nodes", "x"}, "silent": {"set", "rl1:nodes", silent}, "future": {"set", "rl1:nodes", late},
	} {
		server.Client().Del(t.Context(), "rl1:nodes")
		if err := server.Client().Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
		wantNodes(t, name, s, 1)
	}
}
