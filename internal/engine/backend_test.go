package engine_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// A backend is a kind of store that decisions are tested on.
type backend struct {
	name string
	// fresh returns an empty store that reads clock, or its own if clock is nil, and a function that counts the buckets
	// it has state of.
	fresh func(t *testing.T, clock func() time.Time) (s store.Store, keys func() int)
	// join returns another store on the same buckets, as another process has it. nil: there are no other processes.
	join func(t *testing.T) store.Store
}

// backends are made anew for each test: what they share, they share within it.
func backends(t *testing.T) []backend {
	t.Helper()
	return []backend{memoryBackend(), redisBackend(t)}
}

func memoryBackend() backend {
	return backend{name: "memory", fresh: func(_ *testing.T, clock func() time.Time) (store.Store, func() int) {
		s := memstore.New(memstore.Options{Now: clock})
		return s, s.Len
	}}
}

func redisBackend(t *testing.T) backend {
	t.Helper()
	server := redistest.Start(t)
	open := func(t *testing.T, clock func() time.Time) store.Store {
		t.Helper()
		// A deadline that a loaded machine keeps: these tests are about answers, not about time.
		s, err := redisstore.New(redisstore.Options{URL: server.URL(), Timeout: 10 * time.Second, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	return backend{
		name: "redis",
		fresh: func(t *testing.T, clock func() time.Time) (store.Store, func() int) {
			t.Helper()
			if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			return open(t, clock), func() int {
				n, err := server.Client().DBSize(t.Context()).Result()
				if err != nil {
					t.Fatal(err)
				}
				return int(n)
			}
		},
		join: func(t *testing.T) store.Store { return open(t, nil) },
	}
}

// newKeyer returns a keyer under a secret of the test's own.
func newKeyer(t testing.TB) *store.Keyer {
	t.Helper()
	k, err := store.NewKeyer([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}
