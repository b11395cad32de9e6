package engine

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// randomStatus draws from few numbers, so that ties and edges come up, and sometimes from all.
func randomStatus(r *rand.Rand) Status {
	edges := []int64{0, 1, 2, 10, bucket.MaxHits - 1, bucket.MaxHits}
	n := func() int64 {
		if r.IntN(4) == 0 {
			return r.Int64N(bucket.MaxHits + 1)
		}
		return edges[r.IntN(len(edges))]
	}
	s := Status{HasLimit: true, Quota: n()}
	if r.IntN(2) == 0 {
		s.Over = true
		s.RetryAfter = []time.Duration{bucket.Never, 0, 1, time.Second, time.Hour}[r.IntN(5)]
		return s
	}
	s.Remaining = uint32(min(n(), s.Quota))
	return s
}

// strictest picks as verdicts do: the first of the strictest.
func strictest(a, b Status) Status {
	if Stricter(&b, &a) {
		return b
	}
	return a
}

func equal(a, b Status) bool { return !Stricter(&a, &b) && !Stricter(&b, &a) }

func TestStricterIsATotalOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200_000 {
		a, b, c := randomStatus(r), randomStatus(r), randomStatus(r)
		switch {
		case Stricter(&a, &a):
			t.Fatalf("%+v is stricter than itself", a)
		case Stricter(&a, &b) && Stricter(&b, &a):
			t.Fatalf("both stricter: %+v, %+v", a, b)
		case Stricter(&a, &b) && Stricter(&b, &c) && !Stricter(&a, &c):
			t.Fatalf("not transitive: %+v, %+v, %+v", a, b, c)
		case equal(a, b) && equal(b, c) && !equal(a, c):
			t.Fatalf("equality not transitive: %+v, %+v, %+v", a, b, c)
		case !equal(strictest(a, b), strictest(b, a)):
			t.Fatalf("not commutative: %+v, %+v", a, b)
		case !equal(strictest(a, strictest(b, c)), strictest(strictest(a, b), c)):
			t.Fatalf("not associative: %+v, %+v, %+v", a, b, c)
		case Stricter(&a, &b) != slowlyStricter(a, b):
			t.Fatalf("got %v, want %v: %+v, %+v", Stricter(&a, &b), slowlyStricter(a, b), a, b)
		}
	}
}

// slowlyStricter is the order as the design words it, in fractions.
func slowlyStricter(a, b Status) bool {
	if a.Over != b.Over {
		return a.Over
	}
	if a.Over {
		aNever, bNever := a.RetryAfter == bucket.Never, b.RetryAfter == bucket.Never
		if aNever || bNever {
			return aNever && !bNever
		}
		return a.RetryAfter > b.RetryAfter
	}
	share := func(s Status) *big.Rat {
		if s.Quota == 0 {
			return new(big.Rat)
		}
		return big.NewRat(int64(s.Remaining), s.Quota)
	}
	if order := share(a).Cmp(share(b)); order != 0 {
		return order < 0
	}
	return a.Remaining < b.Remaining
}

func TestStricter(t *testing.T) {
	t.Parallel()
	over := func(wait time.Duration) Status {
		return Status{HasLimit: true, Over: true, RetryAfter: wait, Quota: 10}
	}
	left := func(remaining uint32, quota int64) Status {
		return Status{HasLimit: true, Remaining: remaining, Quota: quota}
	}
	for _, tt := range []struct {
		name string
		a, b Status // a is stricter
	}{
		{"refused before admitted", over(0), left(0, 10)},
		{"the longer wait", over(2), over(1)},
		{"never is longest", over(bucket.Never), over(10 * 365 * 24 * time.Hour)},
		{"the smaller share", left(100, 1000), left(9, 10)},
		{"the smaller number of equal shares", left(1, 10), left(10, 100)},
		{"nothing of nothing", left(0, 0), left(1, bucket.MaxHits)},
		{"the widest numbers", left(bucket.MaxHits-1, bucket.MaxHits), left(bucket.MaxHits, bucket.MaxHits)},
	} {
		if !Stricter(&tt.a, &tt.b) || Stricter(&tt.b, &tt.a) {
			t.Errorf("%s: got %v and %v, want true and false", tt.name, Stricter(&tt.a, &tt.b), Stricter(&tt.b, &tt.a))
		}
	}
}
