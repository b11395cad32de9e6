package redisstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

var linearSeed = flag.Uint64("linear.seed", 0, "seed of TestLinearizableSoak; 0 takes one from the clock")

// An ask is one request of a history: hits of one bucket or of both, at a time of its caller's.
type ask struct {
	now  int64 // microseconds
	hits [2]int64
	one  int // which bucket, or both: 2
}

// An answer is what its caller was told.
type answer struct {
	unknown bool // nothing: it may have been applied, then or later
	allowed [2]bool
	granted [2]int64
	left    [2]int64
}

// pair is the two buckets of a history.
type pair [2][5]int64

// pairModel is the law for two buckets: "One request" of bucket/SPEC.md, over the arithmetic in Go.
func pairModel(limits [2]*bucket.Limit) porcupine.Model {
	takeOne := func(limit *bucket.Limit, words *[5]int64, now, hits int64, mode bucket.Mode) bucket.Outcome {
		s := bucket.State{Words: *words}
		o := limit.Take(&s, now, bucket.Ask{Hits: hits, Mode: mode})
		*words = s.Words
		return o
	}
	return porcupine.Model{
		Init: func() any { return pair{} },
		Step: func(state, input, output any) (bool, any) {
			before, in, out := state.(pair), input.(ask), output.(answer)
			after, want, refused := before, answer{unknown: out.unknown}, false
			for _, mode := range []bucket.Mode{bucket.Fit, bucket.Look} {
				after = before
				for i := range after {
					if in.one != 2 && in.one != i {
						continue
					}
					o := takeOne(limits[i], &after[i], in.now, in.hits[i], mode)
					want.allowed[i], want.granted[i], want.left[i] = o.Allowed, o.Granted, o.Remaining
					refused = refused || !o.Allowed
				}
				if !refused {
					break
				}
			}
			return out.unknown || want == out, after
		},
		Equal: func(a, b any) bool { return a.(pair) == b.(pair) },
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v → %+v", input, output)
		},
	}
}

// R3: histories of many callers of the store alone, while connections are cut, answers are slow, the server stops for a
// while or is killed and comes back with what it had written: each is one that some order of single steps explains. What
// timed out may have been applied, at any time after; what is surely unsent was not.
func TestLinearizableSoak(t *testing.T) {
	if !soak {
		t.Parallel()
	}
	histories, operations := 5, 1000
	if soak {
		histories, operations = 100, 5000
	}
	seed := *linearSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-linear.seed=%d", seed)
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	proxy := redistest.StartProxy(t, server.Addr)
	kinds := []bucket.Config{
		{Hits: 50, Unit: bucket.Second}, {Algorithm: bucket.FixedWindow, Hits: 40, Unit: bucket.Second},
		{Algorithm: bucket.SlidingWindow, Hits: 40, Unit: bucket.Second}, {Algorithm: bucket.GCRA, Hits: 1000, Burst: 7, Unit: bucket.Minute},
	}
	var unknown, faults int
	for h := range histories {
		r := rand.New(rand.NewPCG(seed, uint64(h)))
		var limits [2]*bucket.Limit
		var charges [2]store.Charge
		for i := range limits {
			charges[i] = charge(t, fmt.Sprintf("linear %d %d", h, i), kinds[r.IntN(len(kinds))])
			limits[i] = charges[i].Limit
		}
		events, lost := history(t, proxy, server, charges, r.Uint64(), operations, func(n int) { faults += n })
		unknown += lost
		checking := time.Now()
		result := porcupine.CheckOperationsTimeout(pairModel(limits), events, time.Minute)
		t.Logf("history %d: %d unknown, checked in %v", h, lost, time.Since(checking))
		if result != porcupine.Ok {
			t.Fatalf("history %d of seed %d, %d operations of which %d unknown: got %v, want Ok", h, seed, len(events), lost, result)
		}
	}
	t.Logf("%d histories of %d operations, %d faults, %d unknown outcomes", histories, operations, faults, unknown)
	if faults == 0 || unknown == 0 {
		t.Errorf("got %d faults and %d unknown outcomes, want some: a history without proves little", faults, unknown)
	}
}

// history has eight callers make operations, each by a store of its own, and does something to the server in between.
func history(t *testing.T, proxy *redistest.Proxy, server *redistest.Server, charges [2]store.Charge, seed uint64, operations int, broke func(int)) ([]porcupine.Operation, int) {
	const callers = 8
	var done atomic.Int64
	var broken atomic.Bool
	var mu sync.Mutex
	var events []porcupine.Operation
	var lost int
	began := time.Now()
	var wg sync.WaitGroup
	for client := range callers {
		var now atomic.Int64
		s := open(t, redisstore.Options{URL: "redis://" + proxy.Addr, Timeout: 150 * time.Millisecond, Now: func() time.Time { return time.UnixMicro(now.Load()) }})
		wg.Go(func() {
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			r := rand.New(rand.NewPCG(seed, uint64(client)))
			for done.Add(1) <= int64(operations) {
				in := ask{now: 1_835_395_200_000_000 + time.Since(began).Microseconds() + r.Int64N(2000), one: r.IntN(3)}
				request, index := make([]store.Charge, 0, 2), make([]int, 0, 2)
				for i := range charges {
					if in.one == 2 || in.one == i {
						in.hits[i] = 1 + r.Int64N(3)
						c := charges[i]
						c.Hits = in.hits[i]
						request, index = append(request, c), append(index, i)
					}
				}
				now.Store(in.now)
				got := make([]store.Decision, len(request))
				call := time.Since(began).Nanoseconds()
				err := s.Take(context.Background(), request, got)
				back := time.Since(began).Nanoseconds()
				var out answer
				switch {
				case errors.Is(err, store.ErrUnsent):
					continue // nothing happened
				case err != nil:
					out.unknown, back = true, int64(1<<62)
				default:
					for k, i := range index {
						out.allowed[i], out.granted[i], out.left[i] = got[k].Allowed, got[k].Granted, got[k].Remaining
					}
				}
				mu.Lock()
				if out.unknown {
					lost++
				}
				events = append(events, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: back})
				mu.Unlock()
				// One outcome that nobody knows is enough: each doubles what a checker must think of.
				for out.unknown && (broken.Load() || s.Ping(context.Background()) != nil) && time.Since(began) < time.Minute {
					runtime.Gosched()
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(seed, callers))
	at := int64(operations) * int64(1+r.IntN(8)) / 10
	redistest.Await(t, time.Minute, "half of a history", func() bool { return done.Load() >= at })
	broke(1)
	broken.Store(true)
	hold := time.After(time.Duration(100+r.IntN(200)) * time.Millisecond)
	switch r.IntN(4) {
	case 0:
		proxy.Cut()
	case 1:
		proxy.Delay(time.Duration(1+r.IntN(100)) * time.Millisecond)
		<-hold
		proxy.Delay(0)
	case 2:
		server.Signal(syscall.SIGSTOP)
		<-hold
		server.Signal(syscall.SIGCONT)
	case 3:
		server.Signal(os.Kill)
		server.Restart()
	}
	broken.Store(false)
	wg.Wait()
	return events, lost
}
