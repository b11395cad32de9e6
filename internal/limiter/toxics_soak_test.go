//go:build soak

package limiter

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// R6: whatever the network does to Redis, every decision comes within its budget, and a key of 100 grants what its failure
// mode says: at most one local part beyond the limit.
func TestToxicsSoak(t *testing.T) {
	const limit, rate, lasts = 100, 100, 10 * time.Second
	toxics := map[string]string{
		"latency 3ms":   `{"type": "latency", "attributes": {"latency": 3}}`,
		"latency 20ms":  `{"type": "latency", "attributes": {"latency": 20}}`,
		"latency 500ms": `{"type": "latency", "attributes": {"latency": 500}}`,
		"jitter":        `{"type": "latency", "attributes": {"latency": 5, "jitter": 5}}`,
		"bandwidth":     `{"type": "bandwidth", "attributes": {"rate": 8}}`,
		"slow close":    `{"type": "slow_close", "attributes": {"delay": 1000}}`,
		"timeout":       `{"type": "timeout", "attributes": {"timeout": 0}}`,
		"reset":         `{"type": "reset_peer", "attributes": {"timeout": 10}}`,
		"slicer":        `{"type": "slicer", "attributes": {"average_size": 8, "size_variation": 4, "delay": 100}}`,
		"data limit":    `{"type": "limit_data", "attributes": {"bytes": 2000}}`,
	}
	modes := map[bucket.FailureMode]int64{ // and the most that a key grants
		bucket.FailOpen:    2 * limit,
		bucket.LocalStrict: limit + limit/10,
		bucket.FailClosed:  limit,
	}
	server := redistest.Start(t)
	for name, toxic := range toxics {
		for mode, most := range modes {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), name, "127.0.0.1:0", server.Addr)
				if err := proxy.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(proxy.Stop)
				s, err := redisstore.New(redisstore.Options{URL: "redis://" + proxy.Listen})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				l := open(t, Options{
					Store: s, OwnTimer: true, Local: memstore.New(memstore.Options{MaxBuckets: 1000}), Topology: OneShard("redis", s.Ping),
				})
				c := charge(t, bucket.Config{Algorithm: bucket.FixedWindow, Hits: limit, Unit: bucket.Year}, bucket.Policy{OnFailure: mode, Rule: name})
				redistest.Await(t, 10*time.Second, "redis to pay", func() bool {
					return take(l, charge(t, perHour(1), fails))[0].Origin == store.FromStore
				})
				if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
					t.Fatal(err)
				}

				var granted, slowest atomic.Int64
				tick := time.NewTicker(time.Second / rate)
				defer tick.Stop()
				var wg sync.WaitGroup
				for begin := time.Now(); time.Since(begin) < lasts; <-tick.C {
					wg.Go(func() {
						start := time.Now()
						if take(l, c)[0].Allowed {
							granted.Add(1)
						}
						for took := int64(time.Since(start)); ; {
							if most := slowest.Load(); took <= most || slowest.CompareAndSwap(most, took) {
								return
							}
						}
					})
				}
				wg.Wait()
				t.Logf("%d granted of %d, at most %d; the slowest decision took %v", granted.Load(), limit, most, time.Duration(slowest.Load()))
				if got := granted.Load(); got > most {
					t.Errorf("got %d granted, want at most %d", got, most)
				}
				if got := time.Duration(slowest.Load()); got > 500*time.Millisecond {
					t.Errorf("got a decision after %v, want each within its budget of 5ms, on whatever machine this is", got)
				}
			})
		}
	}
}
