package limiter

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// overRedis returns a limiter over a real Redis server.
func overRedis(t *testing.T, server *redistest.Server) *Limiter {
	t.Helper()
	s, err := redisstore.New(redisstore.Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return open(t, Options{
		Store: s, OwnTimer: true, Local: memstore.New(memstore.Options{MaxBuckets: 100_000}), Topology: OneShard("redis", s.Ping),
	})
}

// A load is what open-loop callers at a steady rate saw.
type load struct {
	mu      sync.Mutex
	took    []time.Duration
	origins map[store.Origin]int
}

// run asks rate times a second, whether earlier answers came or not, and waits for all answers.
func (l *load) run(s store.Store, rate int, d time.Duration, charge func(i int) store.Charge) {
	l.took, l.origins = nil, map[store.Origin]int{}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var wg sync.WaitGroup
	begin, sent := time.Now(), 0
	for now := begin; now.Sub(begin) < d; now = <-tick.C {
		for due := int(now.Sub(begin) * time.Duration(rate) / time.Second); sent < due; sent++ {
			c := charge(sent)
			wg.Go(func() {
				start := time.Now()
				origin := take(s, c)[0].Origin
				took := time.Since(start)
				l.mu.Lock()
				defer l.mu.Unlock()
				l.took = append(l.took, took)
				l.origins[origin]++
			})
		}
	}
	wg.Wait()
	slices.Sort(l.took)
}

func (l *load) quantile(q float64) time.Duration { return l.took[int(q*float64(len(l.took)-1))] }

// R5, C67: Redis hangs. No decision waits for it longer than its budget, the breaker opens, nothing piles up, and Redis is
// used again by itself when it answers. The bounds are those of a machine that is busy with other tests: what waits for
// Redis waits seconds.
func TestRedisHangs(t *testing.T) {
	const rate, hang = 2000, 3 * time.Second
	server := redistest.Start(t)
	l := overRedis(t, server)
	var charges []store.Charge
	for range 1000 {
		charges = append(charges, charge(t, perHour(1_000_000), fails))
	}
	pick := func(i int) store.Charge { return charges[i%len(charges)] }
	var seen load
	redistest.Await(t, 10*time.Second, "redis to pay", func() bool { return take(l, charges[0])[0].Origin == store.FromStore })
	seen.run(l, rate, time.Second, pick)
	t.Logf("healthy: p50 %v, p99.9 %v, max %v, %v", seen.quantile(0.5), seen.quantile(0.999), seen.quantile(1), seen.origins)

	redistest.Await(t, 40*time.Second, "a closed breaker", func() bool { return l.Down() == nil })

	before := runtime.NumGoroutine()
	server.Signal(syscall.SIGSTOP)
	opened := make(chan time.Duration, 1)
	stopped, most := time.Now(), 0
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			if l.Down() != nil && len(opened) == 0 {
				opened <- time.Since(stopped)
			}
			most = max(most, runtime.NumGoroutine())
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	seen.run(l, rate, hang, pick)
	cancel()
	watch.Wait()
	server.Signal(syscall.SIGCONT)
	t.Logf("hung: p50 %v, p99.9 %v, max %v, %v, at most %d goroutines more", seen.quantile(0.5), seen.quantile(0.999), seen.quantile(1), seen.origins, most-before)
	if got := seen.quantile(1); got > 500*time.Millisecond {
		t.Errorf("got a decision after %v, want all within 500ms", got)
	}
	if got := seen.quantile(0.5); got > 5*time.Millisecond {
		t.Errorf("got half of the decisions after %v or more, want the breaker to spare them the wait", got)
	}
	if got := seen.origins[store.Unavailable]; got != 0 {
		t.Errorf("got %d decisions unavailable, want the fallback's", got)
	}
	select {
	case after := <-opened:
		t.Logf("breaker open after %v", after)
		if after > time.Second {
			t.Errorf("got the breaker open after %v, want 1s", after)
		}
	default:
		t.Error("the breaker did not open")
	}
	if most-before > 1000 {
		t.Errorf("got %d goroutines more than before, want at most those that wait 5 ms at %d a second", most-before, rate)
	}

	resumed := time.Now() // a breaker that this machine's noise has opened before is held longer
	redistest.Await(t, 40*time.Second, "redis to pay again", func() bool { return take(l, charges[0])[0].Origin == store.FromStore })
	t.Logf("used again %v after it answered", time.Since(resumed))
}

// 64 callers on a key of 500, with the deadline of 5 ms on whatever machine this is, from the first call on. An outage may begin
// with 64 calls under way, whose answers come when the bucket here is spent as well; nothing else is granted twice.
func TestRedisIsExactEnoughUnderLoad(t *testing.T) {
	server := redistest.Start(t)
	l := overRedis(t, server)
	c := charge(t, bucket.Config{Algorithm: bucket.FixedWindow, Hits: 500, Unit: bucket.Year}, bucket.Policy{Refunds: true})
	redistest.Await(t, 10*time.Second, "redis to pay", func() bool {
		return take(l, charge(t, perHour(1), fails))[0].Origin == store.FromStore
	})
	var mu sync.Mutex
	admitted, origins := 0, map[store.Origin]int{}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 100 {
				d := take(l, c)[0]
				mu.Lock()
				origins[d.Origin]++
				if d.Allowed {
					admitted++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d admitted of 500, by origin %v", admitted, origins)
	if admitted > 500+64 {
		t.Errorf("got %d admitted, want at most 564", admitted)
	}
}

// R9, C70: a Redis that refuses to write is one that is away, until it does not; what was granted meanwhile it is told of.
func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := overRedis(t, server)
	c := charge(t, bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1_000_000, Unit: bucket.Year}, fails)
	paid := func() bool { return take(l, c)[0].Origin == store.FromStore }
	do := func(args ...any) {
		t.Helper()
		if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	redistest.Await(t, 40*time.Second, "redis to pay", func() bool { return paid() && l.Down() == nil })

	do("replicaof", "127.0.0.1", "1")
	redistest.Await(t, 10*time.Second, "an open breaker", func() bool { take(l, c); return l.Down() != nil })
	const granted = 100_000
	for range granted / 1000 {
		if d := take(l, with(c, 1000))[0]; d.Origin != store.FromLocal || !d.Allowed {
			t.Fatalf("READONLY: got %+v, want it granted here", d)
		}
	}
	do("replicaof", "no", "one")
	redistest.Await(t, 40*time.Second, "redis to pay again", paid)
	left := take(l, with(c, 0))[0].Remaining
	if used := 1_000_000 - left; used < granted || used > granted+1000 { // and the single hits of those who waited
		t.Errorf("got %d charged in Redis, want the %d granted without it, and little more", used, granted)
	}
}

// C54: Redis is not there at first. Decisions are made from the first request on, and by Redis once it appears.
func TestRedisAppears(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	l := overRedis(t, server)
	c := charge(t, perHour(1_000_000), fails)
	for range 100 {
		if d := take(l, c)[0]; d.Origin != store.FromLocal || !d.Allowed {
			t.Fatalf("without Redis: got %+v, want it granted here", d)
		}
	}
	if l.Down() == nil {
		t.Error("the breaker is closed although nobody answers")
	}
	server.Restart()
	redistest.Await(t, 40*time.Second, "redis to pay", func() bool { return take(l, c)[0].Origin == store.FromStore })
}
