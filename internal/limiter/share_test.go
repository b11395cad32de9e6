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

// Every limit that is valid has valid parts.
func TestSharesOfExtremes(t *testing.T) {
	t.Parallel()
	var s shares
	for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
		for _, hits := range []int64{1, 2, 9, bucket.MaxLogHits, bucket.MaxHits} {
			for _, unit := range []bucket.Unit{bucket.Second, bucket.Day, bucket.Year} {
				for _, debt := range []int64{0, 1, bucket.MaxHits} {
					l, err := bucket.New(bucket.Config{Algorithm: a, Hits: hits, Unit: unit, Debt: debt})
					if err != nil {
						continue
					}
					for _, nodes := range []int64{1, 2, 7, 1000, bucket.MaxHits} {
						s.limit(l, share{nodes, millionths})
						s.limit(l, share{nodes, defaultFraction})
					}
				}
			}
		}
	}
}
