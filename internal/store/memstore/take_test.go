package memstore

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// TestFirstRefusedWait: the first refused charge of a request tells how long to wait for it and those before it, also when
// they are on one bucket.
func TestFirstRefusedWait(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range plays(20_000) {
		c := newClock()
		s := New(Options{Now: c.time})
		l := limit(t, bucket.Config{
			Algorithm: bucket.Algorithm(r.IntN(int(bucket.SlidingLog) + 1)), Hits: 1 + r.Int64N(10), Unit: bucket.Minute,
		})
		for range r.IntN(4) {
			take(t, s, store.Charge{Key: key(i), Limit: l, Hits: 1 + r.Int64N(4)})
			c.wait(time.Duration(r.Int64N(int64(time.Minute))))
		}
		charges := make([]store.Charge, 1+r.IntN(4))
		for k := range charges {
			charges[k] = store.Charge{Key: key(i), Limit: l, Hits: r.Int64N(4)}
		}
		first := -1
		out := take(t, s, charges...)
		for k := range out {
			if !out[k].Allowed {
				first = k
				break
			}
		}
		if first < 0 {
			continue
		}
		wait := out[first].RetryAfter
		if wait == bucket.Never {
			wait = 24 * time.Hour
		}
		c.wait(wait - time.Microsecond)
		if out := take(t, s, charges[:first+1]...); store.Admitted(charges[:first+1], out) {
			t.Fatalf("%v %+v: admitted before its wait of %v", l.Config(), charges, wait)
		}
		if out[first].RetryAfter == bucket.Never {
			continue
		}
		c.wait(time.Microsecond)
		if out := take(t, s, charges[:first+1]...); !store.Admitted(charges[:first+1], out) {
			t.Fatalf("%v %+v: refused after its wait of %v: %+v", l.Config(), charges, wait, out)
		}
	}
}

// TestAdmittedIsInTurn: the charges of an admitted request are answered as if each came by itself.
func TestAdmittedIsInTurn(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	limits := make([]*bucket.Limit, 8)
	for i := range limits {
		limits[i] = limit(t, bucket.Config{
			Algorithm: bucket.Algorithm(i % 6), Hits: 20, Unit: bucket.Minute, Debt: int64(i%2) * 10,
		})
	}
	c := newClock()
	together, alone := New(Options{Now: c.time}), New(Options{Now: c.time})
	for range plays(50_000) {
		c.wait(time.Duration(r.Int64N(int64(10 * time.Second))))
		charges := make([]store.Charge, 1+r.IntN(6))
		for k := range charges {
			at := r.IntN(len(limits))
			charges[k] = store.Charge{
				Key: key(at), Limit: limits[at], Hits: r.Int64N(9) - 2,
				Vote: store.Vote(r.IntN(4)), Book: store.Book(r.IntN(2)),
			}
		}
		got := take(t, together, charges...)
		admitted := store.Admitted(charges, got)
		for k, c := range charges {
			if !admitted && c.Book != store.BookAlways {
				continue
			}
			c.Vote = store.VoteEnforce
			want := take(t, alone, c)[0]
			if admitted {
				if got[k] != want {
					t.Fatalf("charge %d of %+v: (-alone +together)\n%s", k, charges, cmp.Diff(want, got[k]))
				}
			}
		}
		// What a refused request booked is its reports.
		for at, l := range limits {
			peek := store.Charge{Key: key(at), Limit: l}
			if got, want := take(t, together, peek)[0], take(t, alone, peek)[0]; got != want {
				t.Fatalf("after %+v (admitted: %v): (-alone +together)\n%s", charges, admitted, cmp.Diff(want, got))
			}
		}
	}
}
