package limiter

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func TestShare(t *testing.T) {
	t.Parallel()
	tests := []struct{ hits, nodes, millionths, want int64 }{
		{90, 3, millionths, 30},
		{100, 3, millionths, 34}, // rounded up: 3 nodes grant 102
		{1, 3, millionths, 1},
		{0, 3, millionths, 0}, // what denies everything still does
		{500, 1, defaultFraction, 50},
		{500, 3, defaultFraction, 16}, // ⌊167 × 0.1⌋
		{5, 1, defaultFraction, 1},
		{0, 1, defaultFraction, 0},
		{1000, 1, 1, 1},
		{bucket.MaxHits, 1, millionths, bucket.MaxHits},
	}
	for _, tt := range tests {
		if got := (share{tt.nodes, tt.millionths}).of(tt.hits); got != tt.want {
			t.Errorf("%d hits over %d nodes, %d millionths: got %d, want %d", tt.hits, tt.nodes, tt.millionths, got, tt.want)
		}
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	var s shares
	whole := limit(t, bucket.Config{Hits: 1000, Unit: bucket.Hour, Burst: 100, Debt: 50})
	part := s.limit(whole, share{3, defaultFraction})
	want := bucket.Config{Hits: 33, Unit: bucket.Hour, Multiplier: 1, Burst: 3, Debt: 17}
	if diff := cmp.Diff(want, part.Config()); diff != "" {
		t.Errorf("part: -want +got:\n%s", diff)
	}
	if again := s.limit(limit(t, whole.Config()), share{3, defaultFraction}); again != part {
		t.Error("an equal limit has another part")
	}
	for i := range int64(2 * maxShares) {
		s.limit(limit(t, bucket.Config{Hits: i, Unit: bucket.Hour}), share{1, millionths})
	}
	if got := len(s.limits); got > maxShares {
		t.Errorf("got %d limits kept, want at most %d", got, maxShares)
	}
}

// Every limit that is valid has valid parts: something of all it has, no more than it has, and no hit of it is lost
// where the parts are not cut to a fraction.
func TestSharesOfExtremes(t *testing.T) {
	t.Parallel()
	var s shares
	for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
		made := 0
		for _, hits := range []int64{0, 1, 2, 9, bucket.MaxLogHits, bucket.MaxHits} {
			for _, unit := range []bucket.Unit{bucket.Second, bucket.Day, bucket.Year} {
				for _, debt := range []int64{0, 1, bucket.MaxHits} {
					l, err := bucket.New(bucket.Config{Algorithm: a, Hits: hits, Unit: unit, Debt: debt})
					if err != nil {
						continue
					}
					made++
					for _, nodes := range []int64{1, 2, 7, 1000, bucket.MaxHits} {
						for _, fraction := range []int64{millionths, defaultFraction, 1} {
							checkPart(t, l, s.limit(l, share{nodes, fraction}), share{nodes, fraction})
						}
					}
				}
			}
		}
		if made == 0 {
			t.Errorf("%s: got no limit to take parts of", a)
		}
	}
}

// checkPart compares l with s's part of it.
func checkPart(t *testing.T, l, part *bucket.Limit, s share) {
	t.Helper()
	whole, got := l.Config(), part.Config()
	for _, n := range []struct {
		name        string
		whole, part int64
		cut         bool // to the fraction
	}{
		{"hits", whole.Hits, got.Hits, true}, {"burst", whole.Burst, got.Burst, true}, {"debt", whole.Debt, got.Debt, false},
	} {
		least := min(n.whole, 1)
		if !n.cut || s.millionths == millionths {
			least = (n.whole + s.nodes - 1) / s.nodes
		}
		if n.part < least || n.part > n.whole {
			t.Errorf("%+v of %+v: got %s %d, want %d…%d", s, whole, n.name, n.part, least, n.whole)
		}
	}
	got.Hits, got.Burst, got.Debt = whole.Hits, whole.Burst, whole.Debt
	if diff := cmp.Diff(whole, got); diff != "" {
		t.Errorf("%+v: another limit, not a part: -whole +part:\n%s", s, diff)
	}
}
