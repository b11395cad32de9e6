package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// benchKeys is how many buckets the benchmarks draw from.
const benchKeys = 100_000

// benchCharges returns charges on random buckets of a limit that is never reached.
func benchCharges(b *testing.B, n int) []store.Charge {
	b.Helper()
	limit, err := bucket.New(bucket.Config{Hits: 1_000_000, Unit: bucket.Hour})
	if err != nil {
		b.Fatal(err)
	}
	charges := make([]store.Charge, n)
	for i := range charges {
		charges[i] = store.Charge{Limit: limit, Hits: 1}
	}
	return charges
}

func drawKeys(charges []store.Charge, keys int) {
	for i := range charges {
		binary.BigEndian.PutUint64(charges[i].Key[8:], rand.Uint64N(uint64(keys)))
	}
}

// redisCPU returns the CPU time that the server has taken.
func redisCPU(b *testing.B, client *redis.Client) time.Duration {
	b.Helper()
	info, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var sum time.Duration
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += time.Duration(seconds * float64(time.Second))
		}
	}
	return sum
}

// benchTake measures take from so many goroutines, and the server's CPU beside it.
func benchTake(b *testing.B, server *redistest.Server, callers, charges, keys int, take func([]store.Charge, []store.Decision) error) {
	b.Helper()
	proto := benchCharges(b, charges)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	before := redisCPU(b, server.Client())
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			mine := append([]store.Charge(nil), proto...)
			out := make([]store.Decision, charges)
			for left.Add(-1) >= 0 {
				drawKeys(mine, keys)
				if err := take(mine, out); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	cpu := redisCPU(b, server.Client()) - before
	b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(b.N), "redis-µs/op")
}

func benchStore(b *testing.B, t tuning) (*redistest.Server, *Store) {
	b.Helper()
	server := redistest.Start(b)
	s, err := open(Options{URL: server.URL(), Timeout: 5 * time.Second}, t)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return server, s
}

// BenchmarkTake is the store as it is.
func BenchmarkTake(b *testing.B) {
	for _, charges := range []int{1, 3} {
		for _, callers := range []int{1, 8, 64, 512} {
			b.Run(fmt.Sprintf("charges=%d/callers=%d", charges, callers), func(b *testing.B) {
				server, s := benchStore(b, tuned)
				benchTake(b, server, callers, charges, benchKeys, func(c []store.Charge, out []store.Decision) error {
					return s.Take(context.Background(), c, out)
				})
			})
		}
	}
	b.Run("hot/callers=64", func(b *testing.B) {
		server, s := benchStore(b, tuned)
		benchTake(b, server, 64, 1, 1, func(c []store.Charge, out []store.Decision) error {
			return s.Take(context.Background(), c, out)
		})
	})
}

// BenchmarkCarrier compares the ways of carrying requests to Redis: a call each; a pipeline of calls; one call for all
// that have gathered, which is what the store does.
func BenchmarkCarrier(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("plain/callers=%d", callers), func(b *testing.B) {
			server, s := benchStore(b, tuning{senders: 20})
			benchTake(b, server, callers, 1, benchKeys, s.takePlain)
		})
		for _, senders := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("pipeline/senders=%d/callers=%d", senders, callers), func(b *testing.B) {
				server, s := benchStore(b, tuning{queue: 1024})
				s.tuning = tuning{senders: senders, charges: 128, queue: 1024}
				for range senders {
					s.workers.Go(s.sendPipelines)
				}
				benchTake(b, server, callers, 1, benchKeys, func(c []store.Charge, out []store.Decision) error {
					return s.Take(context.Background(), c, out)
				})
			})
			for _, charges := range []int{32, 128} {
				b.Run(fmt.Sprintf("batch=%d/senders=%d/callers=%d", charges, senders, callers), func(b *testing.B) {
					server, s := benchStore(b, tuning{senders: senders, charges: charges, queue: 1024})
					benchTake(b, server, callers, 1, benchKeys, func(c []store.Charge, out []store.Decision) error {
						return s.Take(context.Background(), c, out)
					})
				})
			}
		}
	}
}

// takePlain is a Take that calls Redis by itself, without an outer timer.
func (s *Store) takePlain(charges []store.Charge, out []store.Decision) error {
	c := s.idle.Get().(*call)
	defer s.idle.Put(c)
	if err := c.encode(charges, whole, nil); err != nil {
		return err
	}
	if err := s.eval(context.Background(), c); err != nil {
		return err
	}
	c.decode(out)
	return nil
}

// sendPipelines is send with a pipeline of calls in place of one for all.
func (s *Store) sendPipelines() {
	client, calls := s.lanes.first().node.Load().client, s.lanes.first().calls
	var b batch
	for calls.wait() {
		calls.take(&b, s.tuning.charges)
		pipe := client.Pipeline()
		errands := make([]errand, len(b.calls))
		for i := range b.calls {
			errands[i].pack(b.calls[i : i+1])
			errands[i].cmd = redis.NewStringCmd(context.Background(), errands[i].args...)
			_ = pipe.Process(context.Background(), errands[i].cmd)
		}
		_, err := pipe.Exec(context.Background())
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			if err := client.ScriptLoad(context.Background(), script).Err(); err != nil {
				panic(err) // a benchmark
			}
			pipe = client.Pipeline()
			for i := range errands {
				errands[i].cmd.SetErr(nil)
				_ = pipe.Process(context.Background(), errands[i].cmd)
			}
			_, err = pipe.Exec(context.Background())
		}
		calls.answered(b.calls)
		for i, c := range b.calls {
			if err == nil {
				err = errands[i].read()
			}
			c.finish(err)
		}
		b.clear()
	}
}
