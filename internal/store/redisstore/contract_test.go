package redisstore_test

import (
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/store/storetest"
)

// A pool of go-redis that nobody answered looks whether somebody does for a second after it was closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// open returns a store that ends with the test, silent unless it is given a log.
func open(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestContract(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	storetest.Run(t, func(t *testing.T, now func() time.Time) store.Store {
		return open(t, redisstore.Options{URL: server.URL(), Timeout: 2 * time.Second, Now: now})
	})
}
