package limiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// An interruption is a limiter whose breaker opens and closes as a test says, on one node.
type interruption struct {
	*Limiter
	primary *primary
}

func newInterruption(t *testing.T) interruption {
	p := newPrimary()
	return interruption{open(t, Options{Store: p, OwnTimer: true, Local: newPrimary(), Topology: OneShard("0", p.probe)}), p}
}

// begin has the store fail until its breaker is open.
func (i interruption) begin(t *testing.T) {
	t.Helper()
	i.primary.fault.Store(down)
	for i.Down() == nil {
		take(i, charge(t, perHour(1), fails))
	}
}

// end has the store answer and the breaker close, which takes no time.
func (i interruption) end(t *testing.T) {
	t.Helper()
	i.primary.fault.Store(nil)
	i.Nudge()
	synctest.Wait()
	if i.Down() != nil {
		t.Fatal("the breaker is not closed")
	}
}

func TestHandOverBack(t *testing.T) {
	t.Parallel()
	hourly := perHour(60)
	windowed := bucket.Config{Algorithm: bucket.FixedWindow, Hits: 60, Unit: bucket.Hour}
	tests := map[string]struct {
		config bucket.Config
		during func(*testing.T, interruption, store.Charge)
		want   int64 // left in the store after one more hit there
	}{
		"nothing was granted here": {hourly, func(*testing.T, interruption, store.Charge) {}, 59},
		"what was granted here": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 10)
		}, 49},
		"less what has come back since": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 10)
			time.Sleep(4 * time.Minute)
		}, 53},
		"all of it has come back": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 10)
			time.Sleep(10 * time.Minute)
		}, 59},
		"more than a bucket, over a long time": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			for range 4 {
				admits(i, c, 60)
				time.Sleep(time.Hour)
			}
			admits(i, c, 60)
		}, 0},
		"another window": {windowed, func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 60)
			time.Sleep(time.Hour)
		}, 59},
		"the same window": {windowed, func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 30)
			time.Sleep(30 * time.Minute)
		}, 29},
		"less what was given back here": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			d := take(i, with(c, 10))[0]
			back := with(c, -4)
			back.Tick = d.Tick
			take(i, back)
		}, 53},
		"not what was refused here": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			refused := charge(t, hourly, closed)
			take(i, with(c, 10), refused)
		}, 59},
		"not for ever": {perHour(60), func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 30)
			i.end(t)
			time.Sleep(handOverFor + time.Second)
		}, 59},
		"with a request that is refused": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 10)
			i.end(t)
			full := charge(t, perHour(1), fails)
			take(i.primary, full)
			take(i, c, full)
		}, 49},
		"twice on one bucket": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 10)
			i.end(t)
			take(i, c, c)
		}, 47},
		"once, not again": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 10)
			i.end(t)
			take(i, c)
			i.begin(t)
		}, 48},
		"not again after a call that may have brought it": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 10)
			i.end(t)
			i.primary.fault.Store(down)
			take(i, c)
		}, 59},
		"later after a call that was not made": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			admits(i, c, 10)
			i.end(t)
			i.inFlight.Add(i.most)
			take(i, with(c, 2)) // granted here as well
			i.inFlight.Add(-i.most)
		}, 47},
		"not what was sent and not answered": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			i.end(t)
			i.primary.fault.Store(down)
			admits(i, c, 10)
		}, 59},
		"but what failed without being sent": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			i.end(t)
			i.primary.fault.Store(&fault{unsent: true})
			admits(i, c, 10)
		}, 49},
		"nor what is this node's own": {hourly, func(t *testing.T, i interruption, c store.Charge) {
			c.Policy = &bucket.Policy{NodeScope: true}
			admits(i, c, 10)
		}, 59},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := newInterruption(t)
				i.begin(t)
				c := charge(t, tt.config, fails)
				tt.during(t, i, c)
				i.end(t)
				if got := take(i, c)[0]; !got.Allowed && tt.want > 0 || got.Remaining != tt.want || got.Origin != store.FromStore {
					t.Errorf("got %+v, want %d left in the store", got, tt.want)
				}
				if got := i.recent.owing.Load(); got != 0 {
					t.Errorf("got %d buckets that still owe, want none", got)
				}
			})
		})
	}
}

// Whatever becomes of an entry, the count of those that owe stays true.
func TestOwing(t *testing.T) {
	t.Parallel()
	r := newRecent(64)
	var all []store.Charge
	for range 1000 {
		c := charge(t, perHour(60), fails)
		all = append(all, c)
		r.owe(&c, 5, 1)
	}
	r.forgetAll(2)
	for i, c := range all {
		switch i % 3 {
		case 0:
			r.forget(&c.Key, c.Limit, 3)
		case 1:
			r.owe(&c, -5, 3)
		case 2:
			c.Limit = limit(t, perHour(61))
			r.note([]store.Charge{c}, []store.Decision{{Allowed: true, Granted: 1, Remaining: 60}}, 3, 4)
		}
	}
	owing := int64(0)
	for n := range r.ways {
		for i := range r.ways[n] {
			if r.ways[n][i].owed > 0 {
				owing++
			}
		}
	}
	if got := r.owing.Load(); got != owing || owing == 0 {
		t.Errorf("got a count of %d, want the %d entries that owe", got, owing)
	}
}
