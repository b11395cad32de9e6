package bucket_test

import (
	"encoding/binary"
	"flag"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

var (
	modelOps  = flag.Int("model.ops", 1_000_000, "random operations that the model and the metamorphic tests run")
	modelSeed = flag.Uint64("model.seed", 0, "seed of the random operations; 0 takes one from the clock")
)

// ops returns how many operations a random test runs: fewer under -short, and under the race detector, which is slow.
func ops() int {
	if testing.Short() || raceEnabled {
		return *modelOps / 20
	}
	return *modelOps
}

// chance draws the numbers of random tests, with a liking for edges.
type chance struct{ *rand.Rand }

// newChance returns a source whose seed is printed if the test fails, or with -v.
func newChance(t testing.TB) chance {
	t.Helper()
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-model.seed=%d", seed)
	return chance{rand.New(rand.NewPCG(seed, 0))}
}

// upTo returns a number in 0…most, of any size with about the same probability, often at an edge.
func (c chance) upTo(most int64) int64 {
	var n int64
	switch c.IntN(8) {
	case 0:
		n = c.Int64N(4)
	case 1:
		n = most - c.Int64N(3)
	case 2:
		n = 1<<c.IntN(bits.Len64(uint64(most))+1) - c.Int64N(2)
	default:
		n = c.Int64() >> (63 - c.IntN(bits.Len64(uint64(most))+1))
	}
	return max(0, min(n, most))
}

func pick[T any](c chance, of ...T) T { return of[c.IntN(len(of))] }

var zones = []*time.Location{time.UTC, zone("Europe/Berlin"), zone("America/Havana"), zone("Pacific/Apia")}

func zone(name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		panic(err) // the machine that runs the tests has no zone data
	}
	return loc
}

// limit draws a valid limit of a family.
func (c chance) limit(family bucket.Family) *bucket.Limit {
	for {
		unit := bucket.Unit(1 + c.IntN(7))
		cfg := bucket.Config{
			Unit:       unit,
			Multiplier: c.upTo(int64(bucket.MaxPeriod / unit.Duration())),
			Hits:       c.upTo(bucket.MaxHits),
			Envoy:      c.IntN(4) == 0,
		}
		if c.IntN(2) == 0 {
			cfg.Multiplier = 1
		}
		if c.IntN(3) == 0 {
			cfg.Debt = c.upTo(bucket.MaxHits)
		}
		switch family {
		case bucket.Credit:
			cfg.Algorithm = pick(c, bucket.TokenBucket, bucket.GCRA, bucket.LeakyBucket)
			if c.IntN(2) == 0 {
				cfg.Burst = c.upTo(bucket.MaxHits)
			}
			if cfg.Algorithm == bucket.LeakyBucket && c.IntN(2) == 0 {
				cfg.MaxDelay = time.Duration(c.upTo(int64(time.Hour/time.Microsecond))) * time.Microsecond
			}
		case bucket.Window:
			cfg.Algorithm = pick(c, bucket.FixedWindow, bucket.SlidingWindow)
			if cfg.Algorithm == bucket.FixedWindow && unit >= bucket.Day && c.IntN(2) == 0 {
				cfg.Calendar = pick(c, zones...)
			}
		case bucket.Log:
			cfg.Algorithm = bucket.SlidingLog
			cfg.Hits, cfg.Debt = c.upTo(40), c.upTo(40)
		}
		// Too fine a period for so many hits is refused, and so is a burst of nothing: draw again.
		if l, err := bucket.New(cfg); err == nil {
			return l
		}
	}
}

// start draws the instant at which a play begins.
func (c chance) start() int64 {
	switch c.IntN(8) {
	case 0:
		return c.upTo(bucket.MaxTime)
	case 1:
		return bucket.MaxTime - c.upTo(1<<40)
	default:
		return 1_893_456_000_000_000 + c.upTo(1<<48) // 2030 and the nine years after it
	}
}

// step draws what the clock does between two asks, after an outcome under l: mostly it goes on to where something happens.
func (c chance) step(l *bucket.Limit, o bucket.Outcome) int64 {
	tau := l.Tick().Microseconds()
	period := l.Period().Microseconds()
	switch c.IntN(16) {
	case 0, 1, 2:
		return 0
	case 3, 4, 5:
		return max(0, o.RetryAfter+pick[int64](c, 0, 0, -tau, -1, 1))
	case 6, 7:
		return max(0, o.ResetAfter+pick[int64](c, 0, 0, -tau, -1, 1))
	case 8:
		return tau + c.Int64N(3) - 1
	case 9:
		return period*c.Int64N(3) + c.Int64N(3) - 1
	case 10:
		return -c.upTo(1_000_001)
	case 11:
		return pick(c, -c.upTo(period), -c.upTo(1<<52), c.upTo(1<<52))
	default:
		return c.upTo(2 * period)
	}
}

// ask draws an ask under l. Ticks are those of earlier grants.
func (c chance) ask(l *bucket.Limit, ticks []int64) bucket.Ask {
	cfg := l.Config()
	most := max(cfg.Hits, cfg.Burst)
	a := bucket.Ask{Mode: pick(c, bucket.Fit, bucket.Fit, bucket.Fit, bucket.Report, bucket.Count, bucket.Look)}
	switch c.IntN(12) {
	case 0:
		a.Hits = pick[int64](c, bucket.MaxCost, 1<<62, most+1, most+cfg.Debt, -1<<63)
	case 1, 2:
		a.Hits = 0
	case 3, 4:
		a.Hits = -c.upTo(most + cfg.Debt + 1)
		if len(ticks) > 0 && c.IntN(2) == 0 {
			a.Tick = pick(c, ticks...)
		}
	case 5, 6:
		a.Hits = c.upTo(most + 1)
		a.AtLeast = c.upTo(a.Hits)
	case 7:
		a.Hits = most
	default:
		a.Hits = 1 + c.upTo(most)
	}
	if c.IntN(8) == 0 {
		a.Before = c.upTo(most)
		a.Mode = bucket.Look
	}
	a.MaxDelay = pick(c, 0, cfg.MaxDelay.Microseconds(), c.upTo(1<<40), -1)
	return a
}

// bytesSource draws from bytes while there are any, and then from a generator that they seed.
type bytesSource struct {
	data []byte
	then *rand.ChaCha8
}

func newBytesRand(data []byte) *rand.Rand {
	var seed [32]byte
	copy(seed[:], data)
	return rand.New(&bytesSource{data, rand.NewChaCha8(seed)})
}

// Uint64 implements rand.Source.
func (s *bytesSource) Uint64() uint64 {
	if len(s.data) < 8 {
		return s.then.Uint64()
	}
	n := binary.LittleEndian.Uint64(s.data)
	s.data = s.data[8:]
	return n
}
