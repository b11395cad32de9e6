package bucket_test

import (
	"errors"
	"math/big"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func newLimit(t testing.TB, c bucket.Config) *bucket.Limit {
	t.Helper()
	l, err := bucket.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNewDefaults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in     bucket.Config
		want   bucket.Config
		period time.Duration
		terms  bucket.Terms
	}{
		"a token bucket holds a period's hits": {
			bucket.Config{Hits: 20, Unit: bucket.Second},
			bucket.Config{Hits: 20, Unit: bucket.Second, Multiplier: 1, Burst: 20},
			time.Second,
			bucket.Terms{N: 20, B: 20, P: 1_000_000, Tau: 1},
		},
		"a burst of its own": {
			bucket.Config{Hits: 6, Unit: bucket.Minute, Multiplier: 5, Burst: 1, Debt: 2},
			bucket.Config{Hits: 6, Unit: bucket.Minute, Multiplier: 5, Burst: 1, Debt: 2},
			5 * time.Minute,
			bucket.Terms{N: 6, B: 1, D: 2, P: 300_000_000, Tau: 1},
		},
		"zero hits": {
			bucket.Config{Unit: bucket.Hour},
			bucket.Config{Unit: bucket.Hour, Multiplier: 1},
			time.Hour,
			bucket.Terms{P: 3_600_000_000, Tau: 1},
		},
		"the tick grows with burst and period": {
			bucket.Config{Hits: bucket.MaxHits, Unit: bucket.Year, Multiplier: 10},
			bucket.Config{Hits: bucket.MaxHits, Unit: bucket.Year, Multiplier: 10, Burst: bucket.MaxHits},
			bucket.MaxPeriod,
			bucket.Terms{N: bucket.MaxHits, B: bucket.MaxHits, P: 315_360, Tau: 1_000_000_000},
		},
		"a window has no burst": {
			bucket.Config{Algorithm: bucket.SlidingWindow, Hits: 100, Unit: bucket.Month},
			bucket.Config{Algorithm: bucket.SlidingWindow, Hits: 100, Unit: bucket.Month, Multiplier: 1},
			30 * 24 * time.Hour,
			bucket.Terms{N: 100, P: 2_592_000_000_000, Tau: 1, Sliding: true},
		},
		"a queue": {
			bucket.Config{Algorithm: bucket.LeakyBucket, Hits: 50, Unit: bucket.Second, Burst: 25, MaxDelay: 500 * time.Millisecond},
			bucket.Config{Algorithm: bucket.LeakyBucket, Hits: 50, Unit: bucket.Second, Multiplier: 1, Burst: 25, MaxDelay: 500 * time.Millisecond},
			time.Second,
			bucket.Terms{N: 50, B: 25, P: 1_000_000, Tau: 1, MaxDelay: 500_000},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLimit(t, tt.in)
			if diff := cmp.Diff(tt.want, l.Config()); diff != "" {
				t.Errorf("config: (-want +got)\n%s", diff)
			}
			if got := l.Period(); got != tt.period {
				t.Errorf("period: got %v, want %v", got, tt.period)
			}
			if diff := cmp.Diff(tt.terms, l.Terms()); diff != "" {
				t.Errorf("terms: (-want +got)\n%s", diff)
			}
			if again := newLimit(t, l.Config()); again.Terms() != l.Terms() {
				t.Errorf("made again of its config: got %+v, want %+v", again.Terms(), l.Terms())
			}
		})
	}
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   bucket.Config
		want string
	}{
		"nothing": {bucket.Config{}, "unit none: must be second, minute, hour, day, week, month or year"},
		"negative hits": {
			bucket.Config{Hits: -1, Unit: bucket.Second},
			"hits -1: must be 0…4294967295",
		},
		"hits past 32 bits": {
			bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1 << 32, Unit: bucket.Second},
			"hits 4294967296: must be 0…4294967295",
		},
		"negative burst and debt": {
			bucket.Config{Hits: 1, Unit: bucket.Second, Burst: -1, Debt: -1},
			"debt -1: must be 0…4294967295\nburst -1: must be 1…4294967295",
		},
		"a burst without a bucket": {
			bucket.Config{Algorithm: bucket.SlidingLog, Hits: 1, Unit: bucket.Second, Burst: 1},
			"burst 1: only token_bucket, gcra and leaky_bucket have one",
		},
		"a log too long": {
			bucket.Config{Algorithm: bucket.SlidingLog, Hits: 900, Debt: 101, Unit: bucket.Second},
			"hits 900: sliding_log remembers every hit: hits + debt must be at most 1000",
		},
		"more than ten years": {
			bucket.Config{Hits: 1, Unit: bucket.Year, Multiplier: 11},
			"multiplier 11: must be 1…10 for a year: a period is at most 10 years",
		},
		"a multiplier that overflows": {
			bucket.Config{Hits: 1, Unit: bucket.Year, Multiplier: 1 << 62},
			"multiplier 4611686018427387904: must be 1…10 for a year: a period is at most 10 years",
		},
		"a negative multiplier": {
			bucket.Config{Hits: 1, Unit: bucket.Second, Multiplier: -1},
			"multiplier -1: must be 1…315360000 for a second: a period is at most 10 years",
		},
		"a delay without a queue": {
			bucket.Config{Hits: 1, Unit: bucket.Second, MaxDelay: time.Second},
			"max_delay 1s: only leaky_bucket has one",
		},
		"a delay too fine": {
			bucket.Config{Algorithm: bucket.LeakyBucket, Hits: 1, Unit: bucket.Second, MaxDelay: 1500 * time.Nanosecond},
			"max_delay 1.5µs: must be whole microseconds, at most 10 years",
		},
		"a negative delay": {
			bucket.Config{Algorithm: bucket.LeakyBucket, Hits: 1, Unit: bucket.Second, MaxDelay: -time.Second},
			"max_delay -1s: must be whole microseconds, at most 10 years",
		},
		"a calendar of hours": {
			bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1, Unit: bucket.Hour, Calendar: time.UTC},
			"calendar UTC: only a fixed_window of days, weeks, months or years follows one",
		},
		"a calendar for a bucket": {
			bucket.Config{Hits: 1, Unit: bucket.Day, Calendar: time.UTC},
			"calendar UTC: only a fixed_window of days, weeks, months or years follows one",
		},
		"an unknown algorithm and unit": {
			bucket.Config{Algorithm: 9, Hits: 1, Unit: 9},
			"algorithm 9: unknown\nunit unit(9): must be second, minute, hour, day, week, month or year",
		},
		"a period no tick divides": {
			bucket.Config{Hits: bucket.MaxHits, Unit: bucket.Second, Multiplier: 315_359_999},
			"period 87599h59m59s: too fine for 4294967295 hits: choose fewer hits or a rounder period",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := bucket.New(tt.in)
			if l != nil || err == nil || err.Error() != tt.want {
				t.Fatalf("got %v, %v\nwant %s", l, err, tt.want)
			}
			if _, ok := errors.AsType[*bucket.FieldError](err); !ok {
				t.Errorf("got %T, want it to hold a *FieldError", err)
			}
		})
	}
}

// TestNewBoundsProducts shows that no product of hits and ticks can reach 2^53, and that no finer tick would do.
func TestNewBoundsProducts(t *testing.T) {
	t.Parallel()
	c := newChance(t)
	for range ops() / 20 {
		l := c.limit(pick(c, bucket.Credit, bucket.Window))
		terms := l.Terms()
		if terms.Calendar {
			continue
		}
		hits := terms.N + terms.D
		if l.Family() == bucket.Credit {
			hits = terms.B + terms.D
		}
		product := new(big.Int).Mul(big.NewInt(hits), big.NewInt(terms.P))
		bound := big.NewInt(1 << 52)
		if product.Cmp(bound) > 0 {
			t.Fatalf("%+v: got %v credits, want at most 2^52", l.Config(), product)
		}
		finer := new(big.Int).Mul(product, big.NewInt(10))
		if terms.Tau > 1 && finer.Cmp(bound) <= 0 {
			t.Fatalf("%+v: got a tick of %d µs, want a tenth of it", l.Config(), terms.Tau)
		}
		if got := terms.P * terms.Tau; got != l.Period().Microseconds() {
			t.Fatalf("%+v: got %d ticks of %d µs, want a whole period", l.Config(), terms.P, terms.Tau)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
		if got, err := bucket.ParseAlgorithm(a.String()); got != a || err != nil {
			t.Errorf("%v: got %v, %v", a, got, err)
		}
	}
	for u := bucket.Second; u <= bucket.Year; u++ {
		if got, err := bucket.ParseUnit(u.String()); got != u || err != nil {
			t.Errorf("%v: got %v, %v", u, got, err)
		}
	}
	if got, err := bucket.ParseUnit("MINUTE"); got != bucket.Minute || err != nil {
		t.Errorf("MINUTE: got %v, %v", got, err)
	}
	for _, name := range []string{"", "none", "fortnight"} {
		if got, err := bucket.ParseUnit(name); err == nil {
			t.Errorf("unit %q: got %v, want an error", name, got)
		}
	}
	if got, err := bucket.ParseAlgorithm("Token_Bucket"); err == nil {
		t.Errorf("algorithm: got %v, want an error", got)
	}
}

// What Take reads of a limit is one cache line of 64 bytes: the terms, and a word for the family.
func TestTermsFitACacheLine(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(bucket.Terms{}); size > 64-8 {
		t.Errorf("got terms of %d bytes, want 56 at most", size)
	}
}
