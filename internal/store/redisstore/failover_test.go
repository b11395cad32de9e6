package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// kill ends a server and returns how long it took until charges were taken again, asked every few milliseconds.
func kill(t testing.TB, s *redisstore.Store, server *redistest.Server, within time.Duration, charges []store.Charge, meanwhile func()) time.Duration {
	t.Helper()
	server.Stop()
	began := time.Now()
	out := make([]store.Decision, len(charges))
	if err := s.Take(t.Context(), charges, out); err == nil {
		t.Error("a charge on a dead master: got no error, want one")
	}
	redistest.Await(t, within, "charges that are taken again", func() bool {
		meanwhile()
		return s.Take(t.Context(), charges, out) == nil
	})
	return time.Since(began)
}

// R7: a master that Sentinels watch dies.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinels(t, redistest.Setup{}, 1, 3, "")
	var changes atomic.Int64
	s := open(t, redisstore.Options{URL: r.URL(), Timeout: 50 * time.Millisecond, OnChange: func() { changes.Add(1) }})
	wantPaid(t, "before", s)
	before := changes.Load()
	took := kill(t, s, r.Servers[0], 20*time.Second, []store.Charge{charge(t, "a", bucket.Config{Hits: 1000, Unit: bucket.Hour})}, func() {})
	t.Logf("back after %v", took)
	if took > failoverWithin {
		t.Errorf("back after %v, want at most %v", took, failoverWithin)
	}
	redistest.Await(t, 5*time.Second, "a notice of the new master", func() bool { return changes.Load() > before })
	// The one that died comes back as a replica, and nothing goes there.
	r.Servers[0].Restart()
	wantPaid(t, "after", s)
}

// R8: one of three masters dies. The others go on all the while, and its slots are served by its replica.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Setup{}, 3, 0, true)
	var changes atomic.Int64
	s := openCluster(t, redisstore.Options{URL: c.URL(), Timeout: 50 * time.Millisecond, OnChange: func() { changes.Add(1) }})
	three := apart(t, s, 3, "failover", bucket.Config{Hits: 1 << 30, Unit: bucket.Year})
	take(t, s, three...)
	dead := c.Masters[1]
	mine, others := three[0], []store.Charge{}
	for _, c := range three {
		if dead.Client().Exists(t.Context(), c.Key.String()).Val() == 1 {
			mine = c
		} else {
			others = append(others, c)
		}
	}
	if len(others) != 2 {
		t.Fatalf("keys of the other masters: got %d, want 2", len(others))
	}
	before := changes.Load()
	failed, calls := 0, 0
	out := make([]store.Decision, 1)
	shard := s.Shard(&mine)
	took := kill(t, s, dead, 20*time.Second, []store.Charge{mine}, func() {
		for i := range others {
			calls++
			if err := s.Take(t.Context(), others[i:i+1], out); err != nil {
				t.Logf("another shard: %v", err)
				failed++
			}
		}
	})
	t.Logf("back after %v; %d of %d calls of other shards failed", took, failed, calls)
	if took > failoverWithin {
		t.Errorf("back after %v, want at most %v", took, failoverWithin)
	}
	// On a busy machine a call or two are late; all would be if one shard held up the others.
	if failed*50 > calls {
		t.Errorf("calls of other shards that failed: got %d of %d, want none", failed, calls)
	}
	if got := s.Shard(&mine); got != shard {
		t.Errorf("shard after the failover: got %d, want %d as before", got, shard)
	}
	redistest.Await(t, 5*time.Second, "a notice of the new master", func() bool { return changes.Load() > before })
	take(t, s, three...)
}

// failoverWithin is what is promised, where down-after-milliseconds is 1 s and cluster-node-timeout 2 s, and some more for a
// machine that runs other tests.
const failoverWithin = 12 * time.Second

// TestSentinelDemotion demotes the master in place, as an operator may: what is asked of it meets READONLY, and goes to
// the new master within a second of that being known.
func TestSentinelDemotion(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinels(t, redistest.Setup{}, 1, 1, "")
	s := open(t, redisstore.Options{URL: r.URL(), Timeout: 50 * time.Millisecond})
	wantPaid(t, "before", s)
	c := charge(t, "a", bucket.Config{Hits: 1000, Unit: bucket.Hour})
	if err := r.Sentinels[0].Client().Do(t.Context(), "sentinel", "failover", redistest.MasterName).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, 20*time.Second, "a replica that was promoted", func() bool {
		role := r.Servers[1].Client().Do(t.Context(), "role").Val()
		list, _ := role.([]any)
		return len(list) > 0 && list[0] == "master"
	})
	began := time.Now()
	out := make([]store.Decision, 1)
	redistest.Await(t, 20*time.Second, "charges at the new master", func() bool {
		if err := s.Take(t.Context(), []store.Charge{c}, out); err != nil {
			return false
		}
		return r.Servers[1].Client().Exists(t.Context(), c.Key.String()).Val() == 1
	})
	t.Logf("at the new master after %v", time.Since(began))
}

// TestReady waits for Sentinels and a Cluster that do not answer, and for those that do.
func TestReady(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis-sentinel://main@127.0.0.1:1", "redis-cluster://127.0.0.1:1"} {
		s := open(t, redisstore.Options{URL: url})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Ready(short); !errors.Is(err, store.ErrUnsent) || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%s: got error %v, want one that says who did not answer", url, err)
		}
	}
	c := redistest.StartCluster(t, redistest.Setup{}, 1, 0, false)
	for _, url := range []string{"redis://127.0.0.1:1", c.URL()} {
		s := open(t, redisstore.Options{URL: url, Timeout: patient})
		if err := s.Ready(t.Context()); err != nil {
			t.Errorf("%s: got error %v, want none", url, err)
		}
		if url == c.URL() {
			take(t, s, charge(t, "a", bucket.Config{Hits: 1, Unit: bucket.Hour}), charge(t, "b", bucket.Config{Hits: 1, Unit: bucket.Hour}))
		}
	}
}
