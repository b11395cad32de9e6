package redisstore

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// choices is where a test's numbers come from: a random source, or the bytes of a fuzzer.
type choices interface {
	// n returns a number in [0, below).
	n(below int) int
	// more reports whether there is another choice to be had.
	more() bool
}

type random struct{ *rand.Rand }

func (r random) n(below int) int { return r.IntN(below) }
func (r random) more() bool      { return true }

type fuzzed struct{ data []byte }

func (b *fuzzed) n(below int) int {
	var v uint16
	switch len(b.data) {
	case 0:
	case 1:
		v, b.data = uint16(b.data[0]), nil
	default:
		if below <= 256 {
			v, b.data = uint16(b.data[0]), b.data[1:]
		} else {
			v, b.data = binary.LittleEndian.Uint16(b.data), b.data[2:]
		}
	}
	return int(v) % below
}

func (b *fuzzed) more() bool { return len(b.data) > 0 }

// pick returns one of the values.
func pick[T any](c choices, values ...T) T { return values[c.n(len(values))] }

// around returns v, or a number next to it.
func around(c choices, v int64) int64 { return v + int64(c.n(3)-1) }

// large returns a number of any size up to 2^bits.
func large(c choices, bits int) int64 {
	v := int64(0)
	for range c.n(bits + 1) {
		v = v<<1 | int64(c.n(2))
	}
	return v
}

// hitsOf returns numbers that a limit of hits is made of, from the edges.
func hitsOf(c choices) int64 {
	return pick(c, 0, 1, 2, 3, 5, 7, 10, 60, 100, 1000, 65536, 1_000_000, 1<<31, bucket.MaxHits-1, bucket.MaxHits, large(c, 31))
}

var zones = func() []*time.Location {
	var zones []*time.Location
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"} {
		z, err := time.LoadLocation(name)
		if err != nil {
			panic(err) // the tests' machine lacks tzdata, and Go's own copy
		}
		zones = append(zones, z)
	}
	return zones
}()

// limitOf returns a limit of family f; most that are drawn are valid.
func limitOf(c choices, f bucket.Family) *bucket.Limit {
	for range 100 {
		config := bucket.Config{
			Hits:       hitsOf(c),
			Unit:       bucket.Unit(1 + c.n(int(bucket.Year))),
			Multiplier: pick[int64](c, 0, 0, 0, 1, 2, 3, 5, 7, 10, 60, 365),
			Debt:       pick(c, 0, 0, 0, 1, 5, 100, hitsOf(c)),
			Envoy:      c.n(3) == 0,
		}
		switch f {
		case bucket.Credit:
			config.Algorithm = pick(c, bucket.TokenBucket, bucket.GCRA, bucket.LeakyBucket)
			config.Burst = pick(c, 0, 0, 1, 2, around(c, config.Hits), hitsOf(c))
			if config.Algorithm == bucket.LeakyBucket {
				config.MaxDelay = pick(c, 0, time.Microsecond, 100*time.Millisecond, time.Second, 10*time.Second, 365*24*time.Hour)
			}
		case bucket.Window:
			config.Algorithm = pick(c, bucket.FixedWindow, bucket.SlidingWindow)
			if config.Algorithm == bucket.FixedWindow && config.Unit >= bucket.Day && c.n(2) == 0 {
				config.Calendar = zones[c.n(len(zones))]
			}
		case bucket.Log:
			config.Algorithm = bucket.SlidingLog
			config.Hits = pick[int64](c, 0, 1, 2, 3, 5, 10, 100, 250, 500, 1000, 1000)
			config.Debt = pick[int64](c, 0, 0, 1, 5, 300)
		}
		if l, err := bucket.New(config); err == nil {
			return l
		}
	}
	l, err := bucket.New(bucket.Config{Algorithm: map[bucket.Family]bucket.Algorithm{
		bucket.Credit: bucket.TokenBucket, bucket.Window: bucket.FixedWindow, bucket.Log: bucket.SlidingLog,
	}[f], Hits: 10, Unit: bucket.Minute})
	if err != nil {
		panic(err) // 10 a minute is valid
	}
	return l
}

// chargeOf returns what may be asked of a bucket under l, ticks being those of its earlier decisions.
func chargeOf(c choices, key store.Key, l *bucket.Limit, ticks []int64) store.Charge {
	t := l.Terms()
	most := max(t.B, t.N)
	hits := pick(c, 1, 1, 1, 1, 0, 0, 2, 3, 7, most, around(c, most), most/2, around(c, most+t.D), bucket.MaxHits, bucket.MaxCost, 1<<62,
		-1, -1, -2, -most, -around(c, most), -1<<62, large(c, 33), -large(c, 33))
	return store.Charge{
		Key:      key,
		Limit:    l,
		Hits:     hits,
		AtLeast:  pick(c, 0, 0, 0, 0, 1, 1, 2, around(c, hits), -1, 1<<62),
		Tick:     pick(c, 0, ticks[c.n(len(ticks))], ticks[c.n(len(ticks))], ticks[c.n(len(ticks))]+1, -1, -5, 1<<62),
		MaxDelay: pick(c, 0, 0, time.Millisecond, 150*time.Millisecond, 10*time.Second, 1<<62, -1),
		Vote: pick(c, store.VoteEnforce, store.VoteEnforce, store.VoteEnforce, store.VoteEnforce, store.VoteNone,
			store.VoteQuota, store.VoteQuota, store.VoteQuota+1, store.VoteQuota+127),
		Book: pick(c, store.BookIfAdmitted, store.BookIfAdmitted, store.BookIfAdmitted, store.BookAlways, store.BookWhenRefuses),
	}
}

// stepOf returns how far the clock moves between two requests under l, in microseconds.
func stepOf(c choices, l *bucket.Limit) int64 {
	t := l.Terms()
	period := t.P * t.Tau
	hit := period / max(1, t.N)
	return pick(c, 0, 0, 0, 1, around(c, t.Tau), around(c, hit), around(c, hit), hit/2, around(c, period), period/2, around(c, 2*period), 1_000_000,
		large(c, 40), 100*period,
		-1, -large(c, 20), -around(c, 1_000_000), -around(c, 1_000_001), -hit, -around(c, period), -large(c, 45))
}

// garbage returns what somebody else may have stored, or a bug.
func garbage(c choices) []byte {
	v := make([]byte, pick(c, 0, 1, 8, 13, 25, 26, 27, 28, 37, 100))
	for i := range v {
		v[i] = pick(c, 0, 0, 0, 1, 2, 3, 255, byte(c.n(256)))
	}
	if len(v) > 0 {
		v[0] = byte(c.n(5))
	}
	return v
}

// longLog returns a log of more entries than are converted at once.
func longLog(c choices, now int64) []byte {
	entries := pick[int64](c, 99, 100, 101, 199, 200, 201, 350)
	step := pick[int64](c, 1, 1000, 1_000_000)
	v := []byte{familyTag(bucket.Log)}
	for i := entries; i > 0; i-- {
		v = append7(v, max(0, now-i*step))
		v = append(v, byte(1+c.n(3)), 0, 0, 0, 0)
	}
	return v
}
