package engine

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func TestScale(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100_000 {
		d := time.Duration(r.Int64N(int64(bucket.MaxPeriod) + 1))
		n, m := 1+r.Int64N(bucket.MaxHits), 1+r.Int64N(bucket.MaxHits)>>r.IntN(32)
		m = max(m, 1)
		product := new(big.Int).Mul(big.NewInt(int64(d)), big.NewInt(n))
		product.Add(product, big.NewInt(m-1)).Div(product, big.NewInt(m))
		want := time.Duration(math.MaxInt64)
		if product.IsInt64() {
			want = time.Duration(product.Int64())
		}
		if got := scale(d, n, m); got != want {
			t.Fatalf("scale(%d, %d, %d): got %d, want %d", d, n, m, got, want)
		}
	}
}
