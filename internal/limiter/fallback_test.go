package limiter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

var (
	strict = bucket.Policy{Rule: "web.login", OnFailure: bucket.LocalStrict}
	closed = bucket.Policy{Rule: "web.pay", OnFailure: bucket.FailClosed}
)

// An outage is a limiter whose primary is away, on a clock of its own.
type outage struct {
	*Limiter
	primary *primary
	nodes   *Nodes
	metrics *prometheus.Registry
}

// newOutage returns a limiter, to be used in a bubble, with a fallback that thinks of three nodes.
func newOutage(t *testing.T) outage {
	o := outage{primary: newPrimary(), nodes: NewNodes(3, nil, nil), metrics: prometheus.NewRegistry()}
	o.Limiter = open(t, Options{Store: o.primary, OwnTimer: true, Local: newPrimary(), Nodes: o.nodes, Registerer: o.metrics})
	o.primary.fault.Store(down)
	return o
}

// C68: during an outage every mode keeps to what it says in advance, side by side, and the outage leaves nothing behind.
func TestFailureModes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		perMinute := bucket.Config{Algorithm: bucket.FixedWindow, Hits: 90, Unit: bucket.Minute}
		opened, kept, shut := charge(t, perMinute, fails), charge(t, perMinute, strict), charge(t, perMinute, closed)
		for range 10 { // minutes, from the start of one
			if got := admits(o, opened, 1000); got != 30 {
				t.Errorf("fail_open: got %d of 90 a minute on one of 3 nodes, want 30", got)
			}
			if got := admits(o, kept, 1000); got != 3 {
				t.Errorf("local_strict: got %d, want 3", got)
			}
			if got := admits(o, shut, 1000); got != 0 {
				t.Errorf("fail_closed: got %d, want 0", got)
			}
			time.Sleep(time.Minute)
		}
		for rule, mode := range map[string]string{"web.api": "fail_open", "web.login": "local_strict", "web.pay": "fail_closed"} {
			if got := metric(t, o.metrics, "ratelimitd_fallback_decisions_total", "rule", rule, "mode", mode); got != 10_000 {
				t.Errorf("%s: got %v decisions counted by %s, want 10,000", rule, got, mode)
			}
		}

		o.primary.fault.Store(nil)
		for name, c := range map[string]store.Charge{"fail_open": opened, "local_strict": kept, "fail_closed": shut} {
			if got := take(o, c)[0]; !got.Allowed || got.Remaining != 89 || got.Origin != store.FromStore {
				t.Errorf("%s, when the store is back: got %+v, want 89 of 90 left", name, got)
			}
		}
	})
}

func TestFallbackDecisions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		out := make([]store.Decision, 2)
		charges := []store.Charge{charge(t, perHour(30), fails), charge(t, perHour(30), strict)}
		if err := o.Take(t.Context(), charges, out); err != nil {
			t.Errorf("decided here: got error %v, want none", err)
		}
		want := []store.Decision{
			{Allowed: true, Granted: 1, Remaining: 9, ResetAfter: 6 * time.Minute, Origin: store.FromLocal},
			{Allowed: true, Granted: 1, Remaining: 0, ResetAfter: time.Hour, Origin: store.FromLocal},
		}
		if diff := cmp.Diff(want, out, cmpopts.IgnoreFields(store.Decision{}, "Tick")); diff != "" {
			t.Errorf("decisions: -want +got:\n%s", diff)
		}

		charges[1].Policy = &closed
		if err := o.Take(t.Context(), charges, out); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("fail_closed: got error %v, want one that wraps ErrUnavailable", err)
		}
		want = []store.Decision{
			{Allowed: true, Remaining: 9, ResetAfter: 6 * time.Minute, Origin: store.FromLocal}, // of a refused request: not spent
			{Origin: store.Unavailable},
		}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("decisions: -want +got:\n%s", diff)
		}
	})
}

// What one request charges here is all or nothing among itself, and with what is decided elsewhere.
func TestFallbackIsAllOrNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		roomy, tight := charge(t, perHour(300), fails), charge(t, perHour(9), fails)
		remains := func(what string, want int64) {
			t.Helper()
			if got := take(o, with(roomy, 0))[0].Remaining; got != want {
				t.Errorf("%s: got %d remaining, want %d", what, got, want)
			}
		}
		if got := admits(o, tight, 5); got != 3 {
			t.Fatalf("got %d, want 3", got)
		}
		take(o, roomy, tight)
		remains("beside one that is refused", 100)

		shadow := tight
		shadow.Vote = store.VoteNone
		take(o, roomy, shadow)
		remains("beside a shadow charge that does not fit", 99)

		report := charge(t, bucket.Config{Hits: 9, Unit: bucket.Hour, Debt: 9}, fails)
		report.Book = store.BookAlways
		take(o, with(report, 4), roomy)
		remains("beside a report that does not fit", 99)
		if got := take(o, report)[0]; got.Allowed {
			t.Errorf("after the report: got %+v, want it booked into debt", got)
		}

		group := func(c store.Charge) store.Charge { c.Vote = store.VoteQuota; return c }
		spare := charge(t, perHour(30), fails)
		take(o, roomy, group(tight), group(spare))
		remains("beside a group with room in one", 98)
		refused := charge(t, perHour(30), closed)
		take(o, roomy, group(tight), group(refused))
		remains("beside a group that is refused here and there", 98)
		pass := charge(t, perHour(30), fails)
		if d := take(o, roomy, group(pass), group(refused)); !store.Admitted([]store.Charge{roomy, group(pass), group(refused)}, d) {
			t.Errorf("a group with room here: got %+v, want admitted", d)
		}
		remains("beside a group with room here", 97)
	})
}

// Hits are given back where they were taken.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		c := charge(t, perHour(30), fails)
		remaining := func(s store.Store) int64 { return take(s, with(c, 0))[0].Remaining }
		back := func(d store.Decision) store.Charge {
			b := with(c, -d.Granted)
			b.Tick = d.Tick
			return b
		}
		here := take(o, with(c, 4))[0]
		if got := remaining(o); got != 6 {
			t.Fatalf("got %d of 10 remaining, want 6", got)
		}
		o.primary.fault.Store(nil)
		there := take(o, with(c, 5))[0]
		if got := take(o, back(here))[0]; got.Granted != -4 || got.Origin != store.FromLocal {
			t.Errorf("taken here, given back when the store is back: got %+v, want 4 given back here", got)
		}
		if got := remaining(o.primary); got != 25 {
			t.Errorf("the store: got %d remaining, want 25: it was given nothing", got)
		}
		o.primary.fault.Store(down)
		if got := take(o, back(there))[0]; !got.Allowed || got.Granted != 0 || got.Origin != store.Unavailable {
			t.Errorf("taken there, given back while it is away: got %+v, want nothing given back", got)
		}
		if got := take(o, with(c, -1))[0]; got.Origin != store.FromLocal {
			t.Errorf("a refund from outside: got %+v, want it to be taken here", got)
		}
		o.primary.fault.Store(nil)
		if got := take(o, back(there))[0]; got.Granted != -5 || got.Origin != store.FromStore {
			t.Errorf("taken there: got %+v, want 5 given back there", got)
		}
	})
}

func TestLocalFraction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		c := charge(t, perHour(300), bucket.Policy{OnFailure: bucket.LocalStrict, LocalFraction: 250_000})
		if got := admits(o, c, 100); got != 25 {
			t.Errorf("a quarter of a third of 300: got %d, want 25", got)
		}
	})
}

// A limit with node scope is paid here although the store answers, and is refused with what the store pays.
func TestNodeScope(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		o.primary.fault.Store(nil)
		node := charge(t, perHour(30), bucket.Policy{Rule: "web.soft", NodeScope: true, OnFailure: bucket.LocalStrict})
		if got := admits(o, node, 100); got != 10 {
			t.Errorf("got %d of 30 an hour on one of 3 nodes, want 10", got)
		}
		if got := o.primary.calls.Load(); got != 0 {
			t.Errorf("got %d calls of the store, want none", got)
		}
		shared := charge(t, perHour(30), fails)
		d := take(o, shared, node)
		if d[0].Granted != 0 || d[0].Remaining != 30 || d[1].Allowed {
			t.Errorf("got %+v, want the shared limit spared", d)
		}
		synctest.Wait() // for what the store was told
		if got := take(o.primary, with(shared, 0))[0].Remaining; got != 30 {
			t.Errorf("the store: got %d remaining, want 30", got)
		}
		if got := metric(t, o.metrics, "ratelimitd_fallback_decisions_total"); got != 0 {
			t.Errorf("got %v of fallback decisions, want none: nothing failed", got)
		}
	})
}

// Keys that no other node derives are not sent: they are decided here until the secret is known.
func TestProvisionalKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		o.primary.fault.Store(nil)
		var keyer store.Keyer
		a, b := charge(t, perHour(30), fails), charge(t, perHour(30), fails)
		a.Key, b.Key = keyer.Key("limit", []string{"a"}), keyer.Key("limit", []string{"b"})
		if got := admits(o, a, 100); got != 10 {
			t.Errorf("got %d of 30 on one of 3 nodes, want 10", got)
		}
		if got := take(o, b)[0]; got.Remaining != 9 || got.Origin != store.FromLocal {
			t.Errorf("another value: got %+v, want a bucket of its own here", got)
		}
		if got := o.primary.calls.Load(); got != 0 {
			t.Errorf("got %d calls of the store, want none", got)
		}
	})
}

// One dead shard: the others pay their charges, nothing is spent on a refused request, and nothing passes uncharged.
func TestDeadShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		dead := func(c *store.Charge) bool { return c.Key[8]%3 == 1 }
		p.fault.Store(&fault{dead: dead})
		l := open(t, Options{Store: p, OwnTimer: true, Local: newPrimary(), Topology: thirds{p}})
		on := func(shard byte, c store.Charge) store.Charge { c.Key[8] = shard; return c }
		paid := func(c store.Charge) int64 {
			synctest.Wait()
			return c.Limit.Terms().N - take(p.Store, with(c, 0))[0].Remaining
		}
		for _, breaker := range []string{"closed", "open"} {
			healthy, lost := on(0, charge(t, perHour(100), fails)), on(1, charge(t, perHour(5), fails))
			if got := admits2(l, healthy, lost, 20); got != 5 {
				t.Errorf("breaker %s: got %d admitted of 5 an hour, want 5", breaker, got)
			}
			if got := paid(healthy); got != 5 {
				t.Errorf("breaker %s: the healthy shard was charged %d, want 5", breaker, got)
			}
			lost = on(1, charge(t, perHour(50), strict)) // the store refuses what it cannot ask; here there is room for 5
			if got := admits2(l, lost, healthy, 3); got != 3 {
				t.Errorf("breaker %s: got %d admitted, want 3", breaker, got)
			}
			if got := paid(healthy); got != 8 {
				t.Errorf("breaker %s: the healthy shard was charged %d, want 8", breaker, got)
			}
			refused := on(1, charge(t, perHour(50), closed))
			if got := admits2(l, healthy, refused, 3); got != 0 {
				t.Errorf("breaker %s: got %d admitted beside fail_closed, want 0", breaker, got)
			}
			if got := paid(healthy); got != 8 {
				t.Errorf("breaker %s: the healthy shard was charged %d, want 8", breaker, got)
			}
			full, spare := on(0, charge(t, perHour(1), fails)), on(2, charge(t, perHour(50), fails))
			take(p.Store, full)
			full.Vote = store.VoteQuota
			group := on(1, charge(t, perHour(50), fails))
			group.Vote = store.VoteQuota
			if got := admits(l, spare, 1); got != 1 {
				t.Errorf("breaker %s: a healthy shard refused", breaker)
			}
			d := take(l, full, group, spare)
			if !d[1].Allowed || d[1].Origin != store.FromLocal || paid(spare) != 2 {
				t.Errorf("breaker %s: a group with room on the dead shard: got %+v and %d charged, want 2", breaker, d, paid(spare))
			}
			for range 20 {
				take(l, on(1, charge(t, perHour(50), fails)))
			}
			if diff := cmp.Diff([]string{"third 1"}, l.Down()); diff != "" {
				t.Fatalf("down: -want +got:\n%s", diff)
			}
		}
		// The others' share of fallback is 0.
		for range 100 {
			for _, shard := range []byte{0, 2} {
				if d := take(l, on(shard, charge(t, perHour(10), fails)))[0]; d.Origin != store.FromStore {
					t.Fatalf("shard %d: got %+v, want the store's decision", shard, d)
				}
			}
		}
		p.fault.Store(nil)
		time.Sleep(10 * time.Second)
		if got := l.Down(); got != nil {
			t.Errorf("down: got %v after the shard was back, want none", got)
		}
	})
}

// admits2 takes two charges as one request n times and returns how many were admitted.
func admits2(s store.Store, a, b store.Charge, n int) int {
	admitted := 0
	for range n {
		if store.Admitted([]store.Charge{a, b}, take(s, a, b)) {
			admitted++
		}
	}
	return admitted
}

// thirds is a topology of three shards.
type thirds struct{ primary *primary }

func (thirds) Shard(c *store.Charge) int { return int(c.Key[8] % 3) }
func (thirds) Name(shard int) string     { return "third " + string(rune('0'+shard)) }
func (s thirds) Probe(_ context.Context, shard int) error {
	if shard == 1 && s.primary.fault.Load() != nil {
		return errIll
	}
	return nil
}
