package limiter

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
)

// A clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2028, time.February, 29, 0, 0, 0, 0, time.UTC)} }

func (c *clock) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) wait(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A denier is a limiter over a store in memory on one clock.
type denier struct {
	*Limiter
	*clock
	primary *primary
}

func newDenier(t *testing.T) denier {
	c := newClock()
	p := &primary{Store: memstore.New(memstore.Options{MaxBuckets: 1 << 14, Now: c.time})}
	return denier{open(t, Options{Store: p, OwnTimer: true, Now: c.time}), c, p}
}

// asked reports whether charges, taken as one request, went to the store.
func (d denier) asked(charges ...store.Charge) bool {
	before := d.primary.calls.Load()
	take(d.Limiter, charges...)
	return d.primary.calls.Load() > before
}

var keeps = bucket.Policy{Rule: "web.api"} // what it was paid

func TestDeniedRecently(t *testing.T) {
	t.Parallel()
	perMinute := bucket.Config{Hits: 10, Unit: bucket.Minute}
	// Each test starts with a bucket of 10 a minute that is empty, so 3 hits were denied for 18 s.
	tests := map[string]func(*testing.T, denier, store.Charge){
		"the same charge, no I/O": func(t *testing.T, d denier, c store.Charge) {
			d.wait(18*time.Second - time.Microsecond)
			if d.asked(with(c, 3)) {
				t.Error("asked the store before the wait was over")
			}
			want := store.Decision{
				Remaining: 2, RetryAfter: time.Microsecond, ResetAfter: 42*time.Second + time.Microsecond, Origin: store.FromDeniedCache,
			}
			if diff := cmp.Diff(want, take(d, with(c, 3))[0]); diff != "" {
				t.Errorf("decision: -want +got:\n%s", diff)
			}
		},
		"until the wait is over, and not a moment longer": func(t *testing.T, d denier, c store.Charge) {
			d.wait(18 * time.Second)
			if !d.asked(with(c, 3)) {
				t.Error("did not ask the store when the wait was over")
			}
		},
		"a dearer charge, with its own wait": func(t *testing.T, d denier, c store.Charge) {
			d.wait(time.Second)
			got := take(d, with(c, 5))[0]
			if got.Origin != store.FromDeniedCache || got.RetryAfter != 29*time.Second {
				t.Errorf("5 hits: got %+v, want 29 s from memory", got)
			}
			if got := take(d, with(c, 11))[0]; got.Origin != store.FromDeniedCache || got.RetryAfter != bucket.Never {
				t.Errorf("more than the burst: got %+v, want never, from memory", got)
			}
		},
		"a cheaper charge asks": func(t *testing.T, d denier, c store.Charge) {
			if !d.asked(with(c, 2)) {
				t.Error("2 hits were denied for what 3 were told")
			}
			if d.asked(with(c, 2)) || d.asked(with(c, 3)) {
				t.Error("asked again for as much")
			}
		},
		"a partial grant is as dear as its least": func(t *testing.T, d denier, c store.Charge) {
			part := with(c, 9)
			part.AtLeast = 2
			if !d.asked(part) {
				t.Error("at least 2 hits were denied for what 3 were told")
			}
			part.AtLeast = 3
			if d.asked(part) {
				t.Error("asked for at least as much as was denied")
			}
		},
		"a peek asks": func(t *testing.T, d denier, c store.Charge) {
			if !d.asked(with(c, 0)) {
				t.Error("a peek was answered from memory")
			}
		},
		"another bucket asks": func(t *testing.T, d denier, c store.Charge) {
			c.Key = key()
			if !d.asked(with(c, 3)) {
				t.Error("another bucket was denied")
			}
		},
		"a shadow charge asks": func(t *testing.T, d denier, c store.Charge) {
			c.Vote = store.VoteNone
			if !d.asked(with(c, 3)) {
				t.Error("a shadow charge refused nothing, but its request did not reach the store")
			}
		},
		"a quota group asks": func(t *testing.T, d denier, c store.Charge) {
			c.Vote = store.VoteQuota
			if !d.asked(with(c, 3)) {
				t.Error("a member of a quota group was denied by itself")
			}
		},
		"beside an enforced charge just seen: both from memory": func(t *testing.T, d denier, c store.Charge) {
			other := charge(t, perMinute, keeps)
			take(d, with(other, 4))
			d.wait(time.Second)
			got := take(d, with(c, 3), other)
			want := []store.Decision{
				{RetryAfter: 17 * time.Second, ResetAfter: 59 * time.Second, Origin: store.FromDeniedCache},
				{Allowed: true, Remaining: 6, ResetAfter: 23 * time.Second, Origin: store.FromDeniedCache},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("decisions: -want +got:\n%s", diff)
			}
		},
		"beside one of which hardly anything is gone: from memory, once both were refused": func(t *testing.T, d denier, c store.Charge) {
			other := charge(t, perHour(1000), keeps)
			take(d, other)
			if !d.asked(with(c, 3), other) || d.asked(with(c, 3), other) {
				t.Error("did not remember, or asked again")
			}
		},
		"beside one not seen for a second: asks": func(t *testing.T, d denier, c store.Charge) {
			other := charge(t, perMinute, keeps)
			take(d, other)
			d.wait(time.Second + time.Microsecond)
			if !d.asked(with(c, 3), other) {
				t.Error("what remains of another limit was told from a second ago")
			}
		},
		"beside one never seen: asks": func(t *testing.T, d denier, c store.Charge) {
			if !d.asked(with(c, 3), charge(t, perMinute, keeps)) {
				t.Error("what remains of another limit was made up")
			}
		},
		"beside one that may not fit: asks": func(t *testing.T, d denier, c store.Charge) {
			other := charge(t, perMinute, keeps)
			take(d, with(other, 8))
			if !d.asked(with(c, 3), with(other, 3)) {
				t.Error("a charge of unknown wait was answered from memory")
			}
		},
		"beside a shadow charge: asks": func(t *testing.T, d denier, c store.Charge) {
			other := charge(t, perMinute, keeps)
			take(d, other)
			other.Vote = store.VoteNone
			if !d.asked(with(c, 3), other) {
				t.Error("a shadow charge was answered from memory")
			}
		},
		"beside a quota group: asks": func(t *testing.T, d denier, c store.Charge) {
			other := charge(t, perMinute, keeps)
			take(d, other)
			other.Vote = store.VoteQuota + 3
			if !d.asked(with(c, 3), other) {
				t.Error("a quota group was answered from memory")
			}
		},
		"beside a report: asks, for it is booked": func(t *testing.T, d denier, c store.Charge) {
			report := charge(t, bucket.Config{Hits: 10, Unit: bucket.Minute, Debt: 10}, keeps)
			take(d, report)
			report.Book = store.BookAlways
			if !d.asked(with(c, 3), report) {
				t.Error("a report was not booked")
			}
		},
		"beside a limit with debt: asks": func(t *testing.T, d denier, c store.Charge) {
			other := charge(t, bucket.Config{Hits: 10, Unit: bucket.Minute, Debt: 10}, keeps)
			take(d, other)
			if !d.asked(with(c, 3), other) {
				t.Error("a limit with debt was answered from memory")
			}
		},
		"beside a refund: asks": func(t *testing.T, d denier, c store.Charge) {
			other := charge(t, perMinute, keeps)
			take(d, with(other, 5))
			if !d.asked(with(c, 3), with(other, -2)) {
				t.Error("a refund was answered from memory")
			}
		},
		"twice on one bucket: asks": func(t *testing.T, d denier, c store.Charge) {
			if !d.asked(with(c, 3), with(c, 3)) {
				t.Error("charges that depend on each other were answered from memory")
			}
		},
		"a limit with debt is not remembered": func(t *testing.T, d denier, _ store.Charge) {
			c := charge(t, bucket.Config{Hits: 10, Unit: bucket.Minute, Debt: 10}, keeps)
			take(d, with(c, 11))
			if !d.asked(with(c, 11)) {
				t.Error("a limit with debt denied from memory")
			}
		},
		"a queue is not remembered": func(t *testing.T, d denier, _ store.Charge) {
			c := charge(t, bucket.Config{Algorithm: bucket.LeakyBucket, Hits: 10, Unit: bucket.Minute, MaxDelay: time.Minute}, keeps)
			take(d, c)
			if take(d, c)[0].Allowed { // it accepts no wait
				t.Fatal("admitted")
			}
			c.MaxDelay = time.Minute
			if d := take(d, c)[0]; !d.Allowed {
				t.Error("a caller that would wait was denied for one that would not")
			}
		},
		"what follows on the same bucket in a request is not remembered": func(t *testing.T, d denier, _ store.Charge) {
			c := charge(t, perMinute, keeps)
			take(d, with(c, 6), with(c, 6)) // the second does not fit after the first
			if got := take(d, with(c, 6))[0]; !got.Allowed {
				t.Errorf("6 of 10: got %+v, want allowed", got)
			}
		},
		"a refund on this node ends it": func(t *testing.T, d denier, c store.Charge) {
			take(d, with(c, -3))
			if got := take(d, with(c, 3))[0]; !got.Allowed {
				t.Errorf("3 of 3 given back: got %+v, want allowed", got)
			}
		},
		"a grant in between ends it, for its wait is longer now": func(t *testing.T, d denier, c store.Charge) {
			d.wait(6 * time.Second)
			take(d, c)
			if got := take(d, with(c, 3))[0]; got.Origin != store.FromStore || got.RetryAfter != 18*time.Second {
				t.Errorf("got %+v, want the store's 18 s", got)
			}
		},
		"Forget ends it": func(t *testing.T, d denier, c store.Charge) {
			d.Forget(c.Key)
			if !d.asked(with(c, 3)) {
				t.Error("denied from memory that was forgotten")
			}
		},
		"ForgetAll ends it": func(t *testing.T, d denier, c store.Charge) {
			d.ForgetAll()
			d.wait(time.Microsecond)
			if !d.asked(with(c, 3)) {
				t.Error("denied from memory that was forgotten")
			}
			if d.asked(with(c, 3)) {
				t.Error("what was said afterwards was not remembered")
			}
		},
		"a larger limit ends it": func(t *testing.T, d denier, c store.Charge) {
			c.Limit = limit(t, bucket.Config{Hits: 20, Unit: bucket.Minute})
			if !d.asked(with(c, 3)) {
				t.Error("denied for what a smaller limit said")
			}
		},
		"the same limit from another snapshot does not": func(t *testing.T, d denier, c store.Charge) {
			c.Limit = limit(t, perMinute)
			if d.asked(with(c, 3)) {
				t.Error("asked again because the rules were loaded again")
			}
		},
		"a second at most where callers give back": func(t *testing.T, d denier, c store.Charge) {
			c.Policy = &bucket.Policy{Refunds: true}
			d.wait(time.Second - time.Microsecond)
			if d.asked(with(c, 3)) {
				t.Error("asked within a second")
			}
			d.wait(time.Microsecond)
			if !d.asked(with(c, 3)) {
				t.Error("did not ask after a second, though another node may have given hits back")
			}
			if d.asked(with(c, 3)) {
				t.Error("asked again although the second answer was a denial as well")
			}
		},
		"a second at most where the store gives back": func(t *testing.T, d denier, c store.Charge) {
			d.recent.givesBack = true
			d.wait(time.Second - time.Microsecond)
			if d.asked(with(c, 3)) {
				t.Error("asked within a second")
			}
			d.wait(time.Microsecond)
			if !d.asked(with(c, 3)) {
				t.Error("did not ask after a second, though what a lost race had taken may be back")
			}
		},
		"a clock that steps back ends it": func(t *testing.T, d denier, c store.Charge) {
			d.wait(-time.Hour)
			if !d.asked(with(c, 3)) {
				t.Error("denied from the future")
			}
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDenier(t)
			c := charge(t, perMinute, keeps)
			take(d, with(c, 10))
			if got := take(d, with(c, 3))[0]; got.Origin != store.FromStore || got.RetryAfter != 18*time.Second {
				t.Fatalf("got %+v, want the store's denial for 18 s", got)
			}
			test(t, d, c)
		})
	}
}

// In profile envoy the charge that refuses is booked. In a fixed window booking it once more has no effect, elsewhere it has.
func TestDeniedWhereRefusalsAreBooked(t *testing.T) {
	t.Parallel()
	for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			d := newDenier(t)
			c := charge(t, bucket.Config{Algorithm: a, Hits: 10, Unit: bucket.Minute, Envoy: true}, keeps)
			c.Book = store.BookWhenRefuses
			other := charge(t, bucket.Config{Algorithm: bucket.FixedWindow, Hits: 10, Unit: bucket.Minute, Envoy: true}, keeps)
			other.Book = store.BookWhenRefuses
			take(d, with(c, 8), other)
			take(d, with(c, 5))
			if got, want := !d.asked(with(c, 5)), a == bucket.FixedWindow; got != want {
				t.Errorf("a charge that was denied: got from memory %v, want %v", got, want)
			}
			if !d.asked(with(c, 5), other) {
				t.Error("beside another that might refuse, and be booked: answered from memory")
			}
		})
	}
}

// A denial lasts from when the store was asked, and its wait from when the store had answered: neither does it outlive the
// store's, nor is anyone who waits told too little.
func TestDeniedIsCountedFromWhenItWasSent(t *testing.T) {
	t.Parallel()
	clock := newClock()
	var d time.Duration
	s := storeFunc(func(_ context.Context, _ []store.Charge, out []store.Decision) error {
		clock.wait(d)
		out[0] = store.Decision{RetryAfter: 10 * time.Second, ResetAfter: time.Minute}
		return nil
	})
	l := open(t, Options{Store: s, OwnTimer: true, Now: clock.time})
	c := charge(t, perHour(10), keeps)
	d = 4 * time.Second
	take(l, c)
	clock.wait(6*time.Second - 1) // 10 s after it was sent
	if got := take(l, c)[0]; got.Origin != store.FromDeniedCache || got.RetryAfter != 4*time.Second+time.Microsecond {
		t.Errorf("just before: got %+v, want 4 s and what rounding up adds, from memory", got)
	}
	clock.wait(1)
	if got := take(l, c)[0]; got.Origin != store.FromStore {
		t.Errorf("10 s after it was sent: got %+v, want the store's word", got)
	}
}

// An answer that was under way while something was given to its bucket is not believed.
func TestDeniedWhileGiving(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]func(*Limiter, store.Charge){
		"a refund":  func(l *Limiter, c store.Charge) { take(l, with(c, -1)) },
		"Forget":    func(l *Limiter, c store.Charge) { l.Forget(c.Key) },
		"ForgetAll": func(l *Limiter, _ store.Charge) { l.ForgetAll() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			var l *Limiter
			c := charge(t, perHour(10), keeps)
			calls := 0
			s := storeFunc(func(_ context.Context, charges []store.Charge, out []store.Decision) error {
				out[0] = store.Decision{RetryAfter: 10 * time.Second, ResetAfter: time.Minute}
				if calls++; calls == 1 {
					clock.wait(time.Millisecond)
					give(l, c)
					clock.wait(time.Millisecond)
				}
				return nil
			})
			l = open(t, Options{Store: s, OwnTimer: true, Now: clock.time})
			take(l, c)
			before := calls
			take(l, c)
			if calls == before {
				t.Error("denied by an answer from before")
			}
		})
	}
}

// A flood of new keys sends nobody who was denied back to the store.
func TestDeniedSurvivesAFlood(t *testing.T) {
	t.Parallel()
	d := newDenier(t)
	l := open(t, Options{Store: d.primary, OwnTimer: true, Now: d.time, Remember: 1024})
	var denied []store.Charge
	for range 100 {
		c := charge(t, bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1, Unit: bucket.Hour}, keeps)
		take(l, c)
		take(l, c)
		denied = append(denied, c)
	}
	c := charge(t, bucket.Config{Algorithm: bucket.FixedWindow, Hits: 5, Unit: bucket.Hour}, keeps)
	for range 10_000 {
		c.Key = key()
		take(l, c)
	}
	for i, c := range denied {
		if got := take(l, c)[0]; got.Origin != store.FromDeniedCache {
			t.Fatalf("key %d: got %+v, want a denial from memory", i, got)
		}
	}
}

// A store and the same store behind a limiter that remembers tell callers the same, whatever they ask.
func TestDeniedAgreesWithTheStore(t *testing.T) {
	t.Parallel()
	const steps = 50_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	d := newDenier(t)
	bare := memstore.New(memstore.Options{MaxBuckets: 1 << 14, Now: d.time})

	configs := []bucket.Config{
		{Hits: 10, Unit: bucket.Second}, {Hits: 7, Unit: bucket.Minute, Burst: 3}, {Hits: 3, Unit: bucket.Second, Burst: 20},
		{Algorithm: bucket.FixedWindow, Hits: 10, Unit: bucket.Second}, {Algorithm: bucket.SlidingWindow, Hits: 10, Unit: bucket.Second},
		{Algorithm: bucket.SlidingLog, Hits: 10, Unit: bucket.Second}, {Hits: 5, Unit: bucket.Second, Debt: 5},
		{Algorithm: bucket.FixedWindow, Hits: 10, Unit: bucket.Second, Envoy: true}, {Algorithm: bucket.SlidingWindow, Hits: 10, Unit: bucket.Second, Envoy: true},
	}
	var pool []store.Charge
	for i := range 27 {
		c := charge(t, configs[i%len(configs)], bucket.Policy{Refunds: i%2 == 0})
		if c.Limit.Config().Envoy {
			c.Book = store.BookWhenRefuses
		}
		pool = append(pool, c)
	}
	fromMemory := 0
	for step := range steps {
		var charges []store.Charge
		for range 1 + random.IntN(3)*random.IntN(2) {
			c := pool[random.IntN(len(pool))]
			switch random.IntN(20) {
			case 0:
				c.Hits = 0
			case 1:
				c.Hits = -1 - random.Int64N(3)
			case 2:
				c.Vote = store.VoteNone
			case 3:
				c.Vote = store.VoteQuota
			case 4:
				c.Hits, c.AtLeast = 12, 1+random.Int64N(12)
			case 5:
				if c.Limit.Config().Debt > 0 {
					c.Book = store.BookAlways
				}
			default:
				c.Hits = 1 + random.Int64N(12)*random.Int64N(2)
			}
			charges = append(charges, c)
		}
		want, got := take(bare, charges...), take(d, charges...)
		for i := range got {
			want[i].Tick, got[i].Tick = 0, 0
			if got[i].Origin != store.FromDeniedCache {
				continue
			}
			fromMemory++
			got[i].Origin = store.FromStore
			// Fractions of a tick and of a hit are not known, nor how fast what was taken before fades.
			l := charges[i].Limit
			if late := got[i].RetryAfter - want[i].RetryAfter; 0 < late && late <= l.Tick() {
				got[i].RetryAfter = want[i].RetryAfter
			}
			fades := l.Terms().Sliding || l.Family() == bucket.Log
			if less := want[i].Remaining - got[i].Remaining; less == 1 || fades && less > 0 {
				got[i].Remaining = want[i].Remaining
			}
		}
		if !slices.Equal(want, got) {
			t.Fatalf("step %d, charges %+v: -the store +the limiter:\n%s", step, charges, cmp.Diff(want, got))
		}
		d.wait(time.Duration(random.Int64N(300_000)*random.Int64N(2)) * time.Microsecond)
	}
	t.Logf("%d of the decisions were made from memory", fromMemory)
	if fromMemory < steps/100 {
		t.Errorf("got %d decisions from memory, want 1 %% at least", fromMemory)
	}
}
