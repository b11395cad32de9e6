package capacity

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func near(t *testing.T, what string, got, want, off float64) {
	t.Helper()
	if !(math.Abs(got-want) <= off) {
		t.Errorf("%s: got %v, want %v (±%v)", what, got, want, off)
	}
}

func TestFleet(t *testing.T) {
	t.Parallel()
	l := Load{
		Decisions: 250_000, ServerCPU: 12, RedisCPU: 8, AtStore: 1, Utilisation: 0.6, Cores: 4, Spare: 1,
		Identities: 2e6, Limits: 2, BucketBytes: 165,
	}
	f, err := l.Fleet()
	if err != nil {
		t.Fatal(err)
	}
	near(t, "cores", f.Cores, 5, 1e-9)                // 250,000 × 12 µs ÷ 0.6
	near(t, "Redis cores", f.RedisCores, 10/3., 1e-9) // 250,000 × 8 µs ÷ 0.6
	near(t, "bytes", f.Bytes, 660e6, 1)               // 2 M × 2 × 165
	if f.Nodes != 3 || f.Shards != 4 {
		t.Errorf("got %d nodes and %d shards, want 2 and a spare, and 4", f.Nodes, f.Shards)
	}
	near(t, "bytes a shard", f.ShardBytes, 165e6, 1)
	near(t, "live buckets", LiveBuckets(50e6, 3600), 50e6/24., 1e-3)
	near(t, "live buckets of more than a day", LiveBuckets(50e6, 1e9), 50e6, 0)
	_, err = Load{Utilisation: 2, Spare: -1}.Fleet()
	if err == nil || !strings.Contains(err.Error(), "utilisation 2: want more than 0, at most 1") || strings.Count(err.Error(), "\n") != 9 {
		t.Errorf("got %v, want all ten mistakes", err)
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	got, err := Service{Instances: 20, Rate: 500, Utilisation: 0.7, Tenants: 200}.Limit()
	if err != nil {
		t.Fatal(err)
	}
	near(t, "limit", got, 35, 1e-9)
	if _, err := (Service{Instances: 1, Rate: 1, Utilisation: 1}).Limit(); err == nil {
		t.Error("got no error for nobody")
	}
}

func TestBehaviour(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		b        Bucket
		rejected float64
	}{
		{Bucket{1, 10, 5}, 0.5 / 1.5},                  // one place: ρ/(1 + ρ)
		{Bucket{1, 10, 1000}, 100. / 101},              // the same where π₀ = 1 would not do for more
		{Bucket{2, 10, 5}, 1 - 1/(math.Exp(-0.5)+0.5)}, // two: π₀ = e^−ρ
		{Bucket{2, 1, 2}, 1 - 1/(math.Exp(-2)+2)},      //
		{Bucket{1000, 10, 20}, 0.5},                    // overloaded, and large: what is too much
		{Bucket{1_000_000, 10, 1000}, 0.99},            //
		{Bucket{1000, 10, 1}, 0},                       // hardly used
		{Bucket{maxBurst, 10, 9.99}, 0},                // nearly full use, and large enough not to care
	} {
		got, err := tt.b.Behaviour()
		if err != nil {
			t.Fatal(err)
		}
		near(t, fmt.Sprintf("%+v", tt.b), got.Rejected, tt.rejected, 1e-9)
		near(t, fmt.Sprintf("%+v sustained", tt.b), got.Sustained, tt.b.Requests*(1-tt.rejected), 1e-5)
	}
	got, err := Bucket{100, 10, 30}.Behaviour()
	if err != nil {
		t.Fatal(err)
	}
	near(t, "drain", got.Drain, 5, 1e-12)
	near(t, "refill", got.Refill, 10, 1e-12)
	near(t, "even", got.Steady, 2./3, 1e-12)
	if _, err := (Bucket{0, -1, math.NaN()}).Behaviour(); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v, want three mistakes", err)
	}
}

// The buckets of the service do to random requests what the formula says.
func TestBehaviourOfOurBuckets(t *testing.T) {
	t.Parallel()
	const seed, requests = 1, 400_000
	for _, b := range []Bucket{{1, 1, 0.7}, {5, 1, 0.9}, {20, 1, 1}, {10, 1, 1.3}, {3, 1, 4}} {
		limit, err := bucket.New(bucket.Config{Hits: 1, Unit: bucket.Second, Burst: int64(b.Burst)})
		if err != nil {
			t.Fatal(err)
		}
		want, err := b.Behaviour()
		if err != nil {
			t.Fatal(err)
		}
		draw := rand.New(rand.NewPCG(seed, uint64(b.Burst)))
		var state bucket.State
		now, refused := 1e12, 0
		for range requests {
			now += draw.ExpFloat64() / b.Requests * 1e6
			if o := limit.Take(&state, int64(now), bucket.Ask{Hits: 1, Mode: bucket.Fit}); !o.Allowed {
				refused++
			}
		}
		// Refusals come in clusters, so that the error is larger than of independent ones.
		near(t, fmt.Sprintf("%+v, seed %d", b, seed), float64(refused)/requests, want.Rejected, 0.006)
	}
}

// The page shows what the functions return.
func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "capacity.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, b := range []Bucket{{5, 10, 8}, {20, 10, 10}, {100, 10, 30}} {
		v, err := b.Behaviour()
		if err != nil {
			t.Fatal(err)
		}
		drain := "never"
		if v.Drain > 0 {
			drain = fmt.Sprintf("%.1f s", v.Drain)
		}
		row := fmt.Sprintf("| %d | %g/s | %g/s | %.1f/s | %.2f %% | %.2f %% | %s | %.1f s |",
			b.Burst, b.Rate, b.Requests, v.Sustained, v.Rejected*100, v.Steady*100, drain, v.Refill)
		if !strings.Contains(page, row+"\n") {
			t.Errorf("docs/capacity.md lacks %s", row)
		}
	}
	for _, l := range []Load{documented(250_000), documented(1_000_000)} {
		f, err := l.Fleet()
		if err != nil {
			t.Fatal(err)
		}
		row := fmt.Sprintf("| %.0f/s | %.1f | %d | %.1f | %d | %.1f GB | %.2f GB |",
			l.Decisions, f.Cores, f.Nodes, f.RedisCores, f.Shards, f.Bytes/1e9, f.ShardBytes/1e9)
		if !strings.Contains(page, row+"\n") {
			t.Errorf("docs/capacity.md lacks %s", row)
		}
	}
}

// documented is the example of the page: 2 million identities active, of 50 million a day, with two limits each.
func documented(decisions float64) Load {
	return Load{
		Decisions: decisions, ServerCPU: 20, RedisCPU: 10, AtStore: 1, Utilisation: 0.6, Cores: 4, Spare: 1,
		Identities: 2e6, Limits: 2, BucketBytes: 165,
	}
}
