package limiter

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// A local bucket starts from the node's part of what the store last said, and of what has come back since.
func TestWarm(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		config bucket.Config
		nodes  int
		spent  int64         // in the store, before the outage
		later  time.Duration // between the store's last word and the first charge here
		want   int64         // left here before that charge
	}{
		"never seen, so nothing was spent": {perHour(60), 1, 0, 0, 60},
		"what was left":                    {perHour(60), 1, 50, 0, 10},
		"nothing left":                     {perHour(60), 1, 60, 0, 0},
		"less than a hundredth spent":      {perHour(1000), 1, 9, 0, 1000},
		"a hundredth spent":                {perHour(1000), 1, 10, 0, 990},
		"less than 100 spent of many":      {perHour(1_000_000), 1, 99, 0, 1_000_000},
		"100 spent of many":                {perHour(1_000_000), 1, 100, 0, 999_900},
		"a third of what was left":         {perHour(60), 3, 50, 0, 3},
		"never more than the local burst":  {perHour(60), 3, 1, 0, 19}, // ⌊59 ÷ 3⌋ of 20
		"refilled at the local rate":       {perHour(60), 3, 60, 9*time.Minute + 1, 3},
		"refilled whole by now":            {perHour(60), 3, 30, 31 * time.Minute, 20},
		"a window goes on":                 {bucket.Config{Algorithm: bucket.FixedWindow, Hits: 60, Unit: bucket.Hour}, 2, 40, 30 * time.Minute, 10},
		"another window":                   {bucket.Config{Algorithm: bucket.FixedWindow, Hits: 60, Unit: bucket.Hour}, 2, 40, time.Hour, 30},
		"a sliding window goes on":         {bucket.Config{Algorithm: bucket.SlidingWindow, Hits: 60, Unit: bucket.Hour}, 2, 40, 30 * time.Minute, 10},
		"a sliding window later":           {bucket.Config{Algorithm: bucket.SlidingWindow, Hits: 60, Unit: bucket.Hour}, 2, 40, time.Hour, 30},
		"a log":                            {bucket.Config{Algorithm: bucket.SlidingLog, Hits: 60, Unit: bucket.Hour}, 2, 40, time.Minute, 10},
		"a log later":                      {bucket.Config{Algorithm: bucket.SlidingLog, Hits: 60, Unit: bucket.Hour}, 2, 40, time.Hour, 30},
		"in debt":                          {bucket.Config{Hits: 60, Unit: bucket.Hour, Debt: 60}, 1, 60, 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPrimary()
				l := open(t, Options{Store: p, OwnTimer: true, Local: newPrimary(), Nodes: NewNodes(tt.nodes, nil, nil)})
				c := charge(t, tt.config, fails)
				if tt.spent > 0 {
					take(l, with(c, tt.spent))
				}
				p.fault.Store(down)
				time.Sleep(tt.later)
				if got := take(l, with(c, 0))[0]; got.Remaining != tt.want || got.Origin != store.FromLocal {
					t.Errorf("got %d left here (%+v), want %d", got.Remaining, got, tt.want)
				}
			})
		})
	}
}

// What the store says between two of its failures is followed down, never up; and what it says again is no reason.
func TestWarmFollowsTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		l := open(t, Options{Store: p, OwnTimer: true, Local: newPrimary()})
		c := charge(t, perHour(3600), fails)
		here := func(what string, want int64) {
			t.Helper()
			p.fault.Store(down)
			if got := take(l, with(c, 0))[0].Remaining; got != want {
				t.Errorf("%s: got %d left here, want %d", what, got, want)
			}
			p.fault.Store(nil)
		}
		take(l, with(c, 600))
		here("after 600 of 3600", 3000)
		here("again", 3000)
		take(l, with(c, 1000))
		here("after 1600", 2000)
		take(l, with(c, -1500)) // a refund makes the store's last word void
		here("after a refund", 2000)
		take(l, with(c, 1))
		here("after more came back there", 2000)
		p.fault.Store(down)
		take(l, with(c, 1990))
		here("after 1990 here", 10)
		take(l, with(c, 0))
		here("with more in the store", 10)
		time.Sleep(10 * time.Second)
		here("10 s later", 20)
	})
}

// On a machine so loaded that some calls are late, whether applied or not, a key of 500 an hour is not granted twice.
func TestSlowCallsAreNoSecondLimit(t *testing.T) {
	t.Parallel()
	flood := func(t *testing.T, remember int) (admitted int64) {
		synctest.Test(t, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			p := newPrimary()
			s := storeFunc(func(ctx context.Context, charges []store.Charge, out []store.Decision) error {
				mu.Lock()
				dice := random.IntN(100)
				took := time.Duration(500+random.IntN(1000)) * time.Microsecond
				mu.Unlock()
				time.Sleep(took)
				if dice >= 6 {
					return p.Take(ctx, charges, out)
				}
				if dice >= 3 { // late, but applied
					_ = p.Take(ctx, charges, out)
				}
				time.Sleep(5*time.Millisecond - took)
				leaveUnpaid(charges, out)
				return store.ErrUnavailable
			})
			l := open(t, Options{Store: s, OwnTimer: true, Local: newPrimary(), Topology: OneShard("0", dies), Remember: remember})
			c := charge(t, perHour(500), bucket.Policy{Refunds: true})
			var n atomic.Int64
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					for range 400 {
						if take(l, c)[0].Allowed {
							n.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if l.Down() != nil {
				t.Error("6 % of late calls opened the breaker")
			}
			admitted = n.Load()
		})
		return admitted
	}
	if got := flood(t, 0); got > 525 {
		t.Errorf("got %d admitted of 500, want at most 5 %% over", got)
	} else {
		t.Logf("%d admitted of 500", got)
	}
	if got := flood(t, -1); got <= 525 {
		t.Errorf("with cold buckets: got %d admitted of 500: this test shows nothing", got)
	} else {
		t.Logf("%d admitted of 500 with cold buckets", got)
	}
}

// R11: entering and leaving the fallback grants at most a local burst a limit more than the limit, and so does a store that
// comes and goes, in each of its at most 12 transitions a minute.
func TestHandOver(t *testing.T) {
	t.Parallel()
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 3)
			const minute = 60 // hits of 60 a minute, in a minute
			within := func(what string, got, most int64) {
				t.Helper()
				if got > most {
					t.Errorf("%s: got %d admitted, want at most %d", what, got, most)
				}
				t.Logf("%s: %d admitted, at most %d", what, got, most)
			}
			within("healthy, a full bucket", f.run(time.Minute), minute+minute)
			f.fail(true)
			within("entering, the bucket empty", f.run(time.Minute), minute+3) // each node's part is rounded up
			f.fail(false)
			within("leaving", f.run(time.Minute), minute+10) // what was granted here is handed over
			f.fail(true)
			within("entering again", f.run(time.Minute), minute+3)
			f.fail(false)
			time.Sleep(2 * time.Minute)
			f.fail(true)
			within("entering, the bucket full", f.run(time.Minute), minute+minute+3)
		})
	})
	t.Run("flapping", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 3)
			f.run(time.Minute) // until the bucket is empty
			f.moves.Store(0)
			admitted := int64(0)
			const minutes = 5
			for range minutes * 100 {
				f.fail(true)
				admitted += f.run(300 * time.Millisecond)
				f.fail(false)
				admitted += f.run(300 * time.Millisecond)
			}
			moves := f.moves.Load()
			most := 60*minutes + 20*moves // over all nodes
			t.Logf("%d admitted in %d minutes, %d transitions on 3 nodes, at most %d", admitted, minutes, moves, most)
			if admitted > most {
				t.Errorf("got %d admitted, want at most %d", admitted, most)
			}
			if moves > 3*12*minutes {
				t.Errorf("got %d transitions of 3 nodes in %d minutes, want at most 12 a minute each", moves, minutes)
			}
		})
	})
}

// A fleet is some nodes over one store, under more load on one key than it grants.
type fleet struct {
	primary *primary
	nodes   []*Limiter
	charge  store.Charge
	moves   atomic.Int64
}

func newFleet(t *testing.T, nodes int) *fleet {
	f := &fleet{primary: newPrimary(), charge: charge(t, bucket.Config{Hits: 60, Unit: bucket.Minute}, bucket.Policy{Refunds: true})}
	for range nodes {
		l := open(t, Options{
			Store: f.primary, OwnTimer: true, Local: newPrimary(), Nodes: NewNodes(nodes, nil, nil), Topology: OneShard("0", f.primary.probe),
		})
		moves := l.shards.moves
		l.shards.moves = func(shard string, open bool) { f.moves.Add(1); moves(shard, open) }
		f.nodes = append(f.nodes, l)
	}
	return f
}

// fail says whether the store fails.
func (f *fleet) fail(fails bool) {
	if fails {
		f.primary.fault.Store(down)
	} else {
		f.primary.fault.Store(nil)
	}
}

// run asks every node 100 times a second, and returns how many hits were granted.
func (f *fleet) run(d time.Duration) (admitted int64) {
	for range d / (10 * time.Millisecond) {
		for _, l := range f.nodes {
			if take(l, f.charge)[0].Allowed {
				admitted++
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return admitted
}

// Calls that are under way when an outage begins are answered after others were decided here: of what is left then, as the
// store says, what was granted here meanwhile is gone as well.
func TestWarmIsLessWhatTheStoreDidNotKnow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		l := open(t, Options{Store: p, OwnTimer: true, Timeout: time.Second, Local: newPrimary(), Topology: OneShard("0", p.probe)})
		c := charge(t, bucket.Config{Algorithm: bucket.FixedWindow, Hits: 100, Unit: bucket.Year}, fails)
		p.fault.Store(&fault{hang: 100 * time.Millisecond, dead: func(*store.Charge) bool { return false }})
		var answered sync.WaitGroup
		answered.Go(func() {
			if d := take(l, with(c, 40))[0]; d.Origin != store.FromStore || !d.Allowed {
				t.Errorf("the call under way: got %+v, want it granted by the store", d)
			}
		})
		synctest.Wait()
		p.fault.Store(&fault{unsent: true})
		for range tripCalls {
			take(l, charge(t, perHour(100), fails))
		}
		if l.Down() == nil {
			t.Fatal("the breaker is closed")
		}
		if got := admits(l, c, 30); got != 30 {
			t.Fatalf("got %d of 30 granted here, of a bucket that nothing is known of", got)
		}
		answered.Wait()
		if got := admits(l, c, 100); got != 30 {
			t.Errorf("got %d granted here, want what 40 in the store and 30 here have left", got)
		}
		p.fault.Store(nil)
		time.Sleep(10 * time.Second)
		if got := admits(l, c, 100); got != 0 {
			t.Errorf("got %d granted by the store afterwards, want none: all is spent", got)
		}
	})
}
