package limiter

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// overTopology returns a limiter over whatever is at url, and its store.
func overTopology(t *testing.T, url string, timeout time.Duration) (*Limiter, *redisstore.Store) {
	t.Helper()
	var l atomic.Pointer[Limiter]
	s, err := redisstore.New(redisstore.Options{URL: url, Timeout: timeout, OnChange: func() {
		if l := l.Load(); l != nil {
			l.Nudge()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l.Store(open(t, Options{
		Store: s, OwnTimer: true, Timeout: timeout, Topology: s, Local: memstore.New(memstore.Options{MaxBuckets: 10_000}), Remember: -1,
	}))
	return l.Load(), s
}

// until takes charges, one of each at a time, until the first was paid by the store again, and returns how long that took
// and where the others were paid.
func until(t *testing.T, l *Limiter, charges []store.Charge) (time.Duration, map[store.Origin]int) {
	t.Helper()
	began, others := time.Now(), map[store.Origin]int{}
	away := 0
	redistest.Await(t, 30*time.Second, "a shard that pays again", func() bool {
		for _, c := range charges[1:] {
			others[take(l, c)[0].Origin]++
		}
		if take(l, charges[0])[0].Origin == store.FromStore {
			return away > 0
		}
		away++
		return false
	})
	return time.Since(began), others
}

// R8: one of three masters dies. The others' limits are decided by Redis all the while, and the dead shard's by the
// fallback until its replica has taken over.
func TestClusterMasterDies(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.Setup{}, 3, 0, true)
	l, s := overTopology(t, cluster.URL(), 50*time.Millisecond)
	redistest.Await(t, 10*time.Second, "a cluster that is known", func() bool { return s.Ping(t.Context()) == nil })
	seen := map[int]bool{}
	var charges []store.Charge // the dead shard's first
	for len(charges) < 3 {
		c := charge(t, bucket.Config{Hits: 1 << 30, Unit: bucket.Year}, bucket.Policy{Refunds: true})
		if shard := s.Shard(&c); !seen[shard] {
			seen[shard] = true
			redistest.Await(t, 10*time.Second, "redis to pay", func() bool { return take(l, c)[0].Origin == store.FromStore })
			charges = append(charges, c)
			if cluster.Masters[0].Client().Exists(t.Context(), c.Key.String()).Val() == 1 {
				charges[0], charges[len(charges)-1] = charges[len(charges)-1], charges[0]
			}
		}
	}
	cluster.Masters[0].Stop()
	took, others := until(t, l, charges)
	t.Logf("back after %v; others %v", took, others)
	if took > 12*time.Second { // 6 s where nothing else runs
		t.Errorf("got the dead shard back after %v, want at most 6s", took)
	}
	if calls := others[store.FromStore]; (others[store.FromLocal]+others[store.Unavailable])*100 > calls {
		t.Errorf("got the other shards' decisions by origin %v, want all from the store", others)
	}
	redistest.Await(t, 10*time.Second, "no shard down", func() bool { return l.Down() == nil })
}

// R7: the master that Sentinels watch dies.
func TestSentinelMasterDies(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinels(t, redistest.Setup{}, 1, 3, "")
	l, _ := overTopology(t, r.URL(), 50*time.Millisecond)
	c := charge(t, bucket.Config{Hits: 1 << 30, Unit: bucket.Year}, bucket.Policy{Refunds: true})
	redistest.Await(t, 10*time.Second, "redis to pay", func() bool { return take(l, c)[0].Origin == store.FromStore })
	r.Servers[0].Stop()
	took, _ := until(t, l, []store.Charge{c})
	t.Logf("back after %v", took)
	if took > 12*time.Second { // 5 s where nothing else runs
		t.Errorf("got redis back after %v, want at most 5s", took)
	}
}
