package limiter

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Callers of all kinds, a store that comes and goes, and everything that else can happen, at once: a refused request spends
// nothing, and afterwards the store was charged for all that it granted, for no more than was granted at all, and so for
// nothing twice.
func TestChaos(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		p := newPrimary()
		nodes := NewNodes(0, nil, nil)
		l := open(t, Options{Store: p, Timeout: 5 * time.Millisecond, Local: newPrimary(), Nodes: nodes, Topology: OneShard("0", p.probe), MaxInFlight: 6})
		var all []store.Charge
		for a := bucket.TokenBucket; a <= bucket.SlidingWindow; a++ {
			for _, policy := range []bucket.Policy{fails, strict, closed} {
				all = append(all, charge(t, bucket.Config{Algorithm: a, Hits: 3000, Unit: bucket.Year}, policy))
			}
		}
		granted := make([][2]atomic.Int64, len(all)) // by the store, and here
		caller := func(random *rand.Rand) {
			for range 3000 {
				var charges []store.Charge
				var of []int
				for range 1 + random.IntN(2) {
					of = append(of, random.IntN(len(all)))
					charges = append(charges, with(all[of[len(of)-1]], random.Int64N(3)))
				}
				out := take(l, charges...)
				admitted := store.Admitted(charges, out)
				for i, d := range out {
					switch {
					case d.Granted != 0 && !admitted:
						t.Errorf("a refused request: got %+v of %+v, want nothing granted", d, charges[i])
					case d.Granted != 0 && d.Granted != charges[i].Hits:
						t.Errorf("got %d granted of %d", d.Granted, charges[i].Hits)
					case d.Origin == store.FromStore:
						granted[of[i]][0].Add(d.Granted)
					case d.Origin == store.FromLocal:
						granted[of[i]][1].Add(d.Granted)
					case d.Origin == store.Unavailable && charges[i].Policy.OnFailure != bucket.FailClosed:
						t.Errorf("got %+v of %+v, want it decided", d, charges[i])
					}
				}
				time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
			}
		}
		var callers, world sync.WaitGroup
		for i := range 8 {
			callers.Go(func() { caller(rand.New(rand.NewPCG(seed, uint64(i)))) })
		}
		var over atomic.Bool
		world.Go(func() {
			random := rand.New(rand.NewPCG(seed, 99))
			faults := []*fault{nil, nil, down, {hang: 2 * time.Millisecond}, {hang: 20 * time.Millisecond}}
			for !over.Load() {
				p.fault.Store(faults[random.IntN(len(faults))])
				switch random.IntN(5) {
				case 0:
					l.Nudge()
				case 1:
					l.Forget(all[random.IntN(len(all))].Key)
				case 2:
					nodes.Learn(random.IntN(4))
				case 3:
					l.ForgetAll()
				}
				time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
			}
		})
		callers.Wait()
		over.Store(true)
		world.Wait()
		p.fault.Store(nil)
		time.Sleep(time.Minute) // for what is under way, and the breaker
		if l.Down() != nil {
			t.Fatal("the breaker is open although the store answers")
		}
		var sums [3]int64
		for i, c := range all {
			used := 3000 - take(p, with(c, 0))[0].Remaining
			fromStore, here := granted[i][0].Load(), granted[i][1].Load()
			if used < fromStore || used > fromStore+here {
				t.Errorf("%s, %s: the store was charged %d, want between the %d that it granted and those and the %d granted here",
					c.Limit.Config().Algorithm, c.Policy.OnFailure, used, fromStore, here)
			}
			sums[0] += used
			sums[1] += fromStore
			sums[2] += here
		}
		t.Logf("the store was charged %d, granted %d, and %d were granted here", sums[0], sums[1], sums[2])
		if sums[1] == 0 || sums[2] == 0 {
			t.Error("not both paid: this test shows nothing")
		}
	})
}
