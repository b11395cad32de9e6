package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// A tardy store takes its time: each call as the dice say. Like redisstore, it answers a caller whose time is over, and lets
// be heard later what became of the call.
type tardy struct {
	*primary
	timeout time.Duration
	late    int // of 100 calls
	first   int // so many calls are late at first
	stuck   int // of 100 calls: those that are late by up to 60 ms
	unsent  int // of 100 late calls: those that were not sent

	mu     sync.Mutex
	random *rand.Rand
	calls  int
}

func (s *tardy) Take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	s.mu.Lock()
	s.calls++
	there, back := s.between(100, 1200), s.between(100, 1200)
	switch late := s.calls <= s.first || s.dice(s.late); {
	case late && s.dice(s.unsent):
		there = time.Hour
	case late && s.dice(50): // it comes there late
		there += s.timeout
	case late:
		back += s.timeout
	}
	if s.dice(s.stuck) {
		there += s.between(5000, 60_000)
	}
	s.mu.Unlock()

	if there == time.Hour {
		time.Sleep(s.timeout)
		leaveUnpaid(charges, out)
		return store.ErrUnsent
	}
	late := store.NewLate(store.ErrUnavailable)
	mine := append([]store.Charge(nil), charges...)
	done := make(chan []store.Decision, 1)
	go func() {
		time.Sleep(there)
		said := make([]store.Decision, len(mine))
		err := s.primary.Take(context.WithoutCancel(ctx), mine, said)
		time.Sleep(back)
		done <- said
		late.End(said, err)
	}()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case said := <-done:
		copy(out, said)
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	leaveUnpaid(charges, out)
	return late
}

func (s *tardy) dice(percent int) bool { return s.random.IntN(100) < percent }

func (s *tardy) between(low, high int) time.Duration {
	return time.Duration(low+s.random.IntN(high-low)) * time.Microsecond
}

// However many calls are late, from the first on or at the end, and whether they come to the store or not, a key of 500 an
// hour is granted at most 5 % more on one node. On several, each may have its part of what the store last said to it.
func TestLateCalls(t *testing.T) {
	t.Parallel()
	const callers, rounds, n = 64, 100, 500
	flood := func(t *testing.T, seed uint64, nodes int, pace time.Duration, s *tardy) (admitted int64) {
		synctest.Test(t, func(t *testing.T) {
			s.primary, s.timeout, s.random = newPrimary(), 5*time.Millisecond, rand.New(rand.NewPCG(seed, 0))
			var limiters []*Limiter
			for range nodes {
				limiters = append(limiters, open(t, Options{
					Store: s, OwnTimer: true, Local: newPrimary(), Nodes: NewNodes(nodes, nil, nil), Topology: OneShard("0", s.probe),
				}))
			}
			c := charge(t, bucket.Config{Algorithm: bucket.FixedWindow, Hits: n, Unit: bucket.Year}, bucket.Policy{Refunds: true})
			var sum atomic.Int64
			var wg sync.WaitGroup
			for i := range callers {
				random := rand.New(rand.NewPCG(seed, uint64(1+i)))
				wg.Go(func() {
					for range rounds {
						if take(limiters[i%nodes], c)[0].Allowed {
							sum.Add(1)
						}
						time.Sleep(time.Duration(random.Int64N(int64(pace))))
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Second) // for what is under way
			admitted = sum.Load()
		})
		return admitted
	}
	for _, nodes := range []int{1, 3} {
		for _, late := range []int{0, 6, 25, 50, 75, 100} {
			for _, first := range []int{0, 64, 200} {
				for _, other := range []*tardy{{}, {unsent: 50}, {stuck: 3}, {stuck: 30}} {
					name := fmt.Sprintf("%d nodes, %d %% late, %d unsent of them, %d stuck, the first %d late", nodes, late, other.unsent, other.stuck, first)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						most := int64(n + n/20)
						if nodes > 1 {
							most = 2 * n
						}
						for _, pace := range []time.Duration{time.Millisecond, 10 * time.Millisecond} { // more than an outage, and many
							seed := rand.Uint64()
							s := &tardy{late: late, first: first, unsent: other.unsent, stuck: other.stuck}
							got := flood(t, seed, nodes, pace, s)
							t.Logf("%d admitted of %d", got, n)
							if got > most {
								t.Errorf("seed %d: got %d admitted, want at most %d", seed, got, most)
							}
						}
					})
				}
			}
		}
	}
}

// A store that never answers leaves a node its whole part, and nothing waits for what is on its way for ever.
func TestLateForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := storeFunc(func(_ context.Context, charges []store.Charge, out []store.Decision) error {
			time.Sleep(5 * time.Millisecond)
			leaveUnpaid(charges, out)
			late := store.NewLate(store.ErrUnavailable)
			go func() {
				time.Sleep(55 * time.Millisecond)
				late.End(nil, store.ErrUnavailable)
			}()
			return late
		})
		l := open(t, Options{Store: s, OwnTimer: true, Local: newPrimary(), Topology: OneShard("0", dies)})
		c := charge(t, bucket.Config{Algorithm: bucket.FixedWindow, Hits: 500, Unit: bucket.Year}, fails)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() { admitted.Add(int64(admits(l, c, 20))) })
		}
		wg.Wait()
		time.Sleep(time.Second)
		if got := admitted.Load(); got != 500 {
			t.Errorf("got %d admitted, want 500", got)
		}
		if got := l.recent.travels.buckets.Load(); got != 0 {
			t.Errorf("got hits on their way to %d buckets, want none", got)
		}
	})
}
