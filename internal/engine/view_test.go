package engine

import (
	"math"
	"math/big"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// A view holds on to no view before it, however often rules and overrides change, and its counters go on.
func TestViewsHoldOnToNoneBefore(t *testing.T) {
	t.Parallel()
	load := func() *rule.Snapshot {
		const yaml = "domain: shop\ndescriptors: [{key: api, rate_limit: {unit: hour, requests_per_unit: 10}}]"
		s, _, err := rule.Load([]rule.File{{Name: "rules.yaml", Data: []byte(yaml)}}, rule.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	rules := &source{load()}
	e := &Engine{snapshots: rules}
	first := weak.Make(e.latest())
	counters := e.latest().domains["shop"].metrics.rules[0]
	for range 50 {
		rules.current = load()
		e.latest()
		e.SetOverrides(nil)
	}
	if e.latest().domains["shop"].metrics.rules[0] != counters {
		t.Error("the rule's counters began anew")
	}
	runtime.GC()
	if first.Value() != nil {
		t.Error("the first view is kept")
	}
}

// source is a Snapshots of one goroutine.
type source struct{ current *rule.Snapshot }

func (s *source) Current() *rule.Snapshot { return s.current }

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
