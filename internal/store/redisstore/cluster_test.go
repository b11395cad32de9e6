package redisstore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/script"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/store/storetest"
)

// openCluster returns a store that knows its cluster.
func openCluster(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	s := open(t, o)
	redistest.Await(t, 10*time.Second, "a cluster that is known", func() bool { return s.Ping(t.Context()) == nil })
	return s
}

// TestCluster holds a store on a Cluster to what one server is held to.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Setup{}, 3, 0, false)
	t.Run("Contract", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, now func() time.Time) store.Store {
			return openCluster(t, redisstore.Options{URL: c.URL(), Timeout: patient, Now: now})
		})
	})
	t.Run("Vectors", func(t *testing.T) {
		t.Parallel()
		paths, err := filepath.Glob("../../bucket/testdata/*.txt")
		if err != nil || len(paths) < 3 {
			t.Fatalf("vectors: got %q (%v), want a file a family", paths, err)
		}
		var now atomic.Int64
		s := openCluster(t, redisstore.Options{URL: c.URL(), Timeout: patient, Now: func() time.Time { return time.UnixMicro(now.Load()) }})
		for _, path := range paths {
			script.Run(t, path, func(c script.Charge) bucket.Outcome {
				now.Store(c.Now)
				return outcome(take(t, s, asked(t, c))[0])
			})
		}
	})
	t.Run("Shards", func(t *testing.T) {
		t.Parallel()
		testShards(t, c)
	})
	t.Run("TwoSlots", func(t *testing.T) {
		t.Parallel()
		testTwoSlots(t, c)
	})
	t.Run("Races", func(t *testing.T) {
		t.Parallel()
		testRaces(t, c)
	})
	t.Run("Secret and nodes", func(t *testing.T) {
		t.Parallel()
		a := openCluster(t, redisstore.Options{URL: c.URL(), Timeout: patient})
		b := openCluster(t, redisstore.Options{URL: c.URL(), Timeout: patient})
		one, err := a.Secret(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if two, err := b.Secret(t.Context()); err != nil || string(two) != string(one) {
			t.Errorf("secret of another: got %x (%v), want %x", two, err, one)
		}
		wantNodes(t, "one", a, 1)
		wantNodes(t, "two", b, 2)
	})
}

// apart returns charges on n buckets of which no two share a shard, up to three, or a slot.
func apart(t testing.TB, s *redisstore.Store, n int, name string, config bucket.Config) []store.Charge {
	t.Helper()
	var charges []store.Charge
	shards := make(map[int]bool)
	for i := 0; len(charges) < n; i++ {
		c := charge(t, fmt.Sprintf("%s %d", name, i), config)
		if shard := s.Shard(&c); !shards[shard] || len(shards) == 3 {
			shards[shard] = true
			charges = append(charges, c)
		}
	}
	return charges
}

func testShards(t *testing.T, c *redistest.Cluster) {
	s := openCluster(t, redisstore.Options{URL: c.URL(), Timeout: patient})
	seen := make(map[int]int)
	for i := range 1000 {
		c := charge(t, fmt.Sprint(i), bucket.Config{Hits: 1, Unit: bucket.Hour})
		seen[s.Shard(&c)]++
	}
	if len(seen) != 3 || seen[0] > 0 {
		t.Errorf("shards of 1000 keys: got %v, want three, and none that nobody serves", seen)
	}
	for shard := range seen {
		if err := s.Probe(t.Context(), shard); err != nil {
			t.Errorf("probe %s: %v", s.Name(shard), err)
		}
	}
}

// C07, C08: two limits in two slots; the one that was fine is not charged when the other denies.
func testTwoSlots(t *testing.T, c *redistest.Cluster) {
	s := openCluster(t, redisstore.Options{URL: c.URL(), Timeout: patient})
	for _, swap := range []bool{false, true} {
		pair := apart(t, s, 2, fmt.Sprint("two slots ", swap), bucket.Config{Algorithm: bucket.FixedWindow, Hits: 10, Unit: bucket.Year})
		user, site := &pair[0], &pair[1]
		user.Limit = charge(t, "", bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1, Unit: bucket.Year}).Limit
		request, u, v := []store.Charge{*user, *site}, 0, 1
		if swap {
			request, u, v = []store.Charge{*site, *user}, 1, 0
		}
		got := take(t, s, request...)
		if !got[u].Allowed || got[u].Remaining != 0 || !got[v].Allowed || got[v].Remaining != 9 {
			t.Errorf("the first: got %+v, want both allowed, 0 and 9 left", got)
		}
		for range 3 {
			got = take(t, s, request...)
			if got[u].Allowed || got[u].RetryAfter <= 0 || !got[v].Allowed || got[v].Remaining != 9 || got[v].Granted != 0 {
				t.Errorf("another: got %+v, want the user refused and 9 left of the site", got)
			}
		}
		if got := take(t, s, *site)[0]; got.Remaining != 8 {
			t.Errorf("the site alone: got %+v, want 8 left", got)
		}
	}
}

// testRaces has many callers ask for two limits in two slots at the same time: no more is admitted than there is, and what
// is admitted is booked in both.
func testRaces(t *testing.T, c *redistest.Cluster) {
	const callers, calls, limit = 16, 40, 100
	s := [2]*redisstore.Store{}
	for i := range s {
		s[i] = openCluster(t, redisstore.Options{URL: c.URL(), Timeout: patient})
	}
	pair := apart(t, s[0], 2, "races", bucket.Config{Algorithm: bucket.FixedWindow, Hits: limit, Unit: bucket.Year})
	pair[1].Limit = charge(t, "", bucket.Config{Algorithm: bucket.FixedWindow, Hits: 2 * limit, Unit: bucket.Year}).Limit
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			out := make([]store.Decision, 2)
			for range calls {
				if err := s[i%2].Take(context.Background(), pair, out); err != nil {
					t.Error(err)
				}
				if store.Admitted(pair, out) {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := admitted.Load(); got > limit || got < limit/2 {
		t.Errorf("admitted: got %d, want at most %d and about as many", got, limit)
	}
	// What lost races had booked is given back in the background.
	redistest.Await(t, 10*time.Second, "as much booked as was admitted", func() bool {
		peeks := append([]store.Charge{}, pair...)
		peeks[0].Hits, peeks[1].Hits = 0, 0
		got := take(t, s[0], peeks...)
		return limit-got[0].Remaining == admitted.Load() && 2*limit-got[1].Remaining == admitted.Load()
	})
}
