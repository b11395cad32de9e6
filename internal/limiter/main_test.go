package limiter

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
)

// A pool of go-redis that nobody answered looks whether somebody does for a second after it was closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// A primary is a store in memory that can fail as a remote one does.
type primary struct {
	*memstore.Store
	calls atomic.Int64
	fault atomic.Pointer[fault]
}

// A fault is what goes wrong with a call of a primary.
type fault struct {
	hang    time.Duration // how long it takes
	applied bool          // whether it was nevertheless applied
	unsent  bool          // whether it says that it surely was not
	dead    func(*store.Charge) bool
}

var down = &fault{}

func newPrimary() *primary {
	return &primary{Store: memstore.New(memstore.Options{MaxBuckets: 1 << 14})}
}

func (p *primary) Take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	p.calls.Add(1)
	f := p.fault.Load()
	if f == nil {
		return p.Store.Take(ctx, charges, out)
	}
	time.Sleep(f.hang)
	if f.dead == nil {
		if f.applied {
			_ = p.Store.Take(ctx, charges, out)
		}
		leaveUnpaid(charges, out)
		if f.unsent {
			return store.ErrUnsent
		}
		return store.ErrUnavailable
	}
	return p.takeSome(ctx, charges, out, f.dead)
}

// probe reports whether it would take charges.
func (p *primary) probe(context.Context) error {
	if p.fault.Load() != nil {
		return errIll
	}
	return nil
}

// takeSome is Take where the shards of some charges are dead. Like a store over several shards, it counts a charge that it
// could not pay by its failure mode.
func (p *primary) takeSome(ctx context.Context, charges []store.Charge, out []store.Decision, dead func(*store.Charge) bool) error {
	q := newPart()
	defer q.free()
	var err error
	refused := false
	for i := range charges {
		if c := &charges[i]; dead(c) {
			out[i], err = store.Unpaid(c), store.ErrUnavailable
			refused = refused || !out[i].Allowed && c.Vote == store.VoteEnforce
		} else {
			q.add(i, *c)
		}
	}
	if len(q.charges) == 0 {
		return err
	}
	if refused {
		q.veto()
	}
	_ = p.Store.Take(ctx, q.charges, q.out)
	q.copyTo(out)
	return err
}

// key returns a key that no other call of it has returned.
func key() store.Key {
	var k store.Key
	binary.LittleEndian.PutUint64(k[:], keys.Add(1)<<8)
	binary.LittleEndian.PutUint64(k[8:], rand.Uint64())
	return k
}

var keys atomic.Uint64

func limit(t testing.TB, c bucket.Config) *bucket.Limit {
	t.Helper()
	l, err := bucket.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// charge returns a charge of one hit on a fresh bucket.
func charge(t testing.TB, c bucket.Config, p bucket.Policy) store.Charge {
	t.Helper()
	return store.Charge{Key: key(), Limit: limit(t, c), Policy: &p, Hits: 1}
}

// with returns c with its hits replaced.
func with(c store.Charge, hits int64) store.Charge {
	c.Hits = hits
	return c
}

// open returns a limiter over o that is closed at the end of the test.
func open(t testing.TB, o Options) *Limiter {
	t.Helper()
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// take takes charges as one request and returns the decisions.
func take(s store.Store, charges ...store.Charge) []store.Decision {
	out := make([]store.Decision, len(charges))
	_ = s.Take(context.Background(), charges, out) // the decisions say what was unavailable
	return out
}

// admits takes c n times, one after the other, and returns how many were allowed.
func admits(s store.Store, c store.Charge, n int) int {
	allowed := 0
	for range n {
		if take(s, c)[0].Allowed {
			allowed++
		}
	}
	return allowed
}

func perHour(hits int64) bucket.Config { return bucket.Config{Hits: hits, Unit: bucket.Hour} }

var fails = bucket.Policy{Rule: "web.api"} // open

// metric returns the sum of a metric's series that have all the labels, given as name and value in turn.
func metric(t testing.TB, reg prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := 0
			for i := 0; i < len(labels); i += 2 {
				for _, l := range m.GetLabel() {
					if l.GetName() == labels[i] && l.GetValue() == labels[i+1] {
						has++
					}
				}
			}
			if has == len(labels)/2 {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
