package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// failureModes is a request of one charge a failure mode, and what it is told when it cannot be paid.
func failureModes(t testing.TB) (charges []store.Charge, unpaid []store.Decision) {
	for _, m := range []bucket.FailureMode{bucket.FailOpen, bucket.LocalStrict, bucket.FailClosed} {
		c := charge(t, m.String(), bucket.Config{Hits: 1 << 20, Unit: bucket.Year})
		c.Policy = &bucket.Policy{OnFailure: m}
		charges = append(charges, c)
		unpaid = append(unpaid, store.Decision{Allowed: m == bucket.FailOpen, Origin: store.Unavailable})
	}
	return charges, unpaid
}

// wantUnpaid takes charges that cannot be paid; the error says whether they were surely not.
func wantUnpaid(t testing.TB, what string, s *redisstore.Store, unsent bool) {
	t.Helper()
	charges, want := failureModes(t)
	got := make([]store.Decision, len(charges))
	if err := s.Take(t.Context(), charges, got); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnsent) != unsent {
		t.Errorf("%s: got error %v, want ErrUnavailable, and ErrUnsent %t", what, err, unsent)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Ping(ctx); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnsent) != unsent {
		t.Errorf("%s: ping: got error %v, want ErrUnavailable, and ErrUnsent %t", what, err, unsent)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -want +got:\n%s", what, diff)
	}
}

// wantPaid waits until charges are paid again.
func wantPaid(t testing.TB, what string, s *redisstore.Store) {
	t.Helper()
	charges, _ := failureModes(t)
	out := make([]store.Decision, len(charges))
	redistest.Await(t, 10*time.Second, what+": paid again", func() bool {
		return s.Take(t.Context(), charges, out) == nil
	})
}

// TestR9 puts Redis in each state in which it refuses to write, and out of it.
func TestR9(t *testing.T) {
	t.Parallel()
	do := func(t *testing.T, c *redis.Client, args ...any) {
		t.Helper()
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	tests := []struct {
		name       string
		args       []string
		enter, end func(t *testing.T, c *redis.Client)
	}{
		{
			"OOM", nil,
			func(t *testing.T, c *redis.Client) { do(t, c, "config", "set", "maxmemory", "1") },
			func(t *testing.T, c *redis.Client) { do(t, c, "config", "set", "maxmemory", "0") },
		},
		{
			"READONLY", nil,
			func(t *testing.T, c *redis.Client) { do(t, c, "replicaof", "127.0.0.1", "1") },
			func(t *testing.T, c *redis.Client) { do(t, c, "replicaof", "no", "one") },
		},
		{
			"MASTERDOWN", []string{"--replica-serve-stale-data", "no"},
			func(t *testing.T, c *redis.Client) { do(t, c, "replicaof", "127.0.0.1", "1") },
			func(t *testing.T, c *redis.Client) { do(t, c, "replicaof", "no", "one") },
		},
		{
			"NOREPLICAS", nil,
			func(t *testing.T, c *redis.Client) { do(t, c, "config", "set", "min-replicas-to-write", "1") },
			func(t *testing.T, c *redis.Client) { do(t, c, "config", "set", "min-replicas-to-write", "0") },
		},
		{
			"MISCONF", []string{"--dir", "/proc", "--save", "3600 1000000"},
			func(t *testing.T, c *redis.Client) {
				do(t, c, "bgsave") // nobody can write there
				redistest.Await(t, 10*time.Second, "a save that goes wrong", func() bool {
					return strings.Contains(c.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
				})
			},
			func(t *testing.T, c *redis.Client) { do(t, c, "config", "set", "stop-writes-on-bgsave-error", "no") },
		},
		{
			"CLIENT PAUSE", nil,
			func(t *testing.T, c *redis.Client) { do(t, c, "client", "pause", "100000", "write") },
			func(t *testing.T, c *redis.Client) { do(t, c, "client", "unpause") },
		},
		{
			"NOPERM", nil,
			func(t *testing.T, c *redis.Client) { do(t, c, "acl", "setuser", "default", "-evalsha", "-eval") },
			func(t *testing.T, c *redis.Client) { do(t, c, "acl", "setuser", "default", "+evalsha", "+eval") },
		},
		{
			"NOPERM of the clock", nil,
			func(t *testing.T, c *redis.Client) { do(t, c, "acl", "setuser", "default", "-time") },
			func(t *testing.T, c *redis.Client) { do(t, c, "acl", "setuser", "default", "+time") },
		},
		{
			"NOAUTH", nil,
			func(t *testing.T, c *redis.Client) {
				do(t, c, "config", "set", "requirepass", "word")
				do(t, c, "client", "kill", "type", "normal", "skipme", "yes")
			},
			func(t *testing.T, c *redis.Client) { do(t, c, "config", "set", "requirepass", "") },
		},
		{
			"BUSY", []string{"--busy-reply-threshold", "10"},
			func(t *testing.T, c *redis.Client) {
				busy := redis.NewClient(&redis.Options{Addr: c.Options().Addr, MaxRetries: -1, ReadTimeout: time.Minute})
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = busy.Eval(context.Background(), "while true do end", nil).Err() // it is killed
				}()
				t.Cleanup(func() { <-done; _ = busy.Close() })
				redistest.Await(t, 10*time.Second, "a server that is busy", func() bool {
					return redis.HasErrorPrefix(c.Ping(t.Context()).Err(), "BUSY")
				})
			},
			func(t *testing.T, c *redis.Client) { do(t, c, "script", "kill") },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, tt.args...)
			s := open(t, redisstore.Options{URL: server.URL(), Timeout: 200 * time.Millisecond})
			wantPaid(t, "before", s)
			tt.enter(t, server.Client())
			// What runs half may have been applied.
			wantUnpaid(t, tt.name, s, tt.name != "CLIENT PAUSE" && tt.name != "NOPERM of the clock")
			if err := s.Probe(t.Context(), 0); err == nil {
				t.Errorf("%s: got no error of a probe, want one as of a charge", tt.name)
			}
			tt.end(t, server.Client())
			wantPaid(t, "after", s)
			if err := s.Probe(t.Context(), 0); err != nil {
				t.Errorf("after %s: got error %v of a probe", tt.name, err)
			}
			if left := server.Client().PTTL(t.Context(), "rl1:probe").Val(); left > 5*time.Millisecond {
				t.Errorf("got %v until the probe's key expires, want a millisecond", left)
			}
		})
	}
}

// TestR9ClusterDown takes its slots away from the only node of a cluster, and gives them back.
func TestR9ClusterDown(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Setup{}, 1, 0, false)
	s := open(t, redisstore.Options{URL: c.URL(), Timeout: 200 * time.Millisecond})
	admin := c.Masters[0].Client()
	wantPaid(t, "before", s)
	if err := admin.Do(t.Context(), "cluster", "delslotsrange", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	wantUnpaid(t, "CLUSTERDOWN", s, true)
	if err := s.Ping(t.Context()); err == nil {
		t.Error("ping without slots: got no error, want one")
	}
	if err := admin.Do(t.Context(), "cluster", "addslotsrange", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	wantPaid(t, "after", s)

	alone := open(t, redisstore.Options{URL: c.Masters[0].URL(), Timeout: 200 * time.Millisecond})
	charges, _ := failureModes(t)
	if err := alone.Take(t.Context(), charges, make([]store.Decision, len(charges))); err == nil || !strings.Contains(err.Error(), "redis-cluster://") {
		t.Errorf("a cluster's node by redis://: got error %v, want one that says redis-cluster://", err)
	}
}

// C70: the server at an address is demoted and the address comes to lead to another one. Connections to the old one are
// not kept.
func TestC70Demoted(t *testing.T) {
	t.Parallel()
	old, next := redistest.Start(t), redistest.Start(t)
	proxy := redistest.StartProxy(t, old.Addr)
	s := open(t, redisstore.Options{URL: "redis://" + proxy.Addr, Timeout: 200 * time.Millisecond})
	wantPaid(t, "before", s)
	host, port, _ := strings.Cut(next.Addr, ":")
	if err := old.Client().Do(t.Context(), "replicaof", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	wantUnpaid(t, "READONLY", s, true)
	proxy.Point(next.Addr)
	began := time.Now()
	wantPaid(t, "after", s)
	// The promise is a second.
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("used again after %v, want at most a second", took)
	}
}

func TestR9Loading(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := redistest.Start(t, "--dir", dir, "--loading-process-events-interval-bytes", "1024")
	pipe := server.Client().Pipeline()
	for i := range 3000 {
		pipe.Set(t.Context(), fmt.Sprintf("key%d", i), "some value of some length", 0)
	}
	pipe.Save(t.Context())
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow := redistest.Start(t, "--dir", dir, "--loading-process-events-interval-bytes", "1024", "--key-load-delay", "1000")
	s := open(t, redisstore.Options{URL: slow.URL(), Timeout: 200 * time.Millisecond})
	wantUnpaid(t, "LOADING", s, true)
	wantPaid(t, "loaded", s)
}

// TestR9ScriptFlush flushes the scripts all the while: a body is sent again, a charge is not.
func TestR9ScriptFlush(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	c := charge(t, "stormy", bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1 << 20, Unit: bucket.Year})
	stop := make(chan struct{})
	var flusher sync.WaitGroup
	flushes := 0
	flusher.Go(func() {
		for ; ; flushes++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := server.Client().ScriptFlush(context.Background()).Err(); err != nil {
				t.Errorf("script flush: %v", err)
				return
			}
		}
	})
	const callers, calls = 8, 300
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			out := make([]store.Decision, 1)
			for range calls {
				if err := s.Take(context.Background(), []store.Charge{c}, out); err != nil {
					t.Errorf("take: %v", err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	flusher.Wait()
	c.Hits = 0
	if got := 1<<20 - take(t, s, c)[0].Remaining; got != callers*calls {
		t.Errorf("%d flushes: got %d hits booked, want %d", flushes, got, callers*calls)
	}
}

func TestR9FlushAll(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	c := charge(t, "a", bucket.Config{Hits: 1, Unit: bucket.Hour})
	for range 3 {
		if d := take(t, s, c)[0]; !d.Allowed {
			t.Errorf("an empty database: got %+v, want allowed", d)
		}
		if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestR9ForeignValues puts other types and nonsense where buckets are: they read as absent, heal, and harm no neighbour.
func TestR9ForeignValues(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	neighbour := charge(t, "neighbour", bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1000, Unit: bucket.Year})
	left := int64(1000)
	for name, config := range everyKind(bucket.Year) {
		c := charge(t, name, config)
		key := c.Key.String()
		for _, command := range [][]any{
			{"rpush", key, "x"}, {"sadd", key, "x"}, {"hset", key, "f", "v"}, {"zadd", key, 1, "x"}, {"xadd", key, "*", "f", "v"},
			{"set", key, ""}, {"set", key, "hello"}, {"set", key, 17}, {"set", key, "\x01"}, {"set", key, "\x03" + string(make([]byte, 24))},
			{"set", key, "\x01" + string(make([]byte, 26))}, {"set", key, "\x02" + string(make([]byte, 25))}, {"set", key, string(make([]byte, 100_000))},
		} {
			if err := server.Client().Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
			if err := server.Client().Do(t.Context(), command...).Err(); err != nil {
				t.Fatal(err)
			}
			left--
			got := take(t, s, c, neighbour)
			if !got[0].Allowed || got[0].Granted != 1 || got[1].Remaining != left {
				t.Errorf("%s over %v: got %+v, want both charged and %d left of the neighbour", name, command[0], got, left)
			}
			if d := take(t, s, c)[0]; d.Remaining > 9 {
				t.Errorf("%s over %v, again: got %+v, want a bucket that counts", name, command[0], d)
			}
		}
	}
}
