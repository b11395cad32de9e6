package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"
)

// Spread says how keys are drawn.
type Spread string

// The spreads.
const (
	Uniform  Spread = "uniform"  // every key as often as any
	Zipf     Spread = "zipf"     // a few keys most of the time: the k-th in proportion to 1/k^1.1
	Hot      Spread = "hot"      // one key
	Sequence Spread = "sequence" // one after another, each once in as many requests as there are keys: to fill a table
)

// Spreads lists them all.
var Spreads = []string{string(Uniform), string(Zipf), string(Hot), string(Sequence)}

// Bounds on what one Load may ask for, so that a slip does not take a machine down.
const (
	MaxConnections = 256
	MaxStreams     = 1024
	MaxDuration    = time.Hour
	MaxKeys        = 1 << 31
)

// Load is what to send, and how to look at it. Addr, Message and Connections, Streams, Keys and one of Duration and Count
// must be given.
type Load struct {
	Addr        string        // host:port, or unix:///path, of a gRPC server without TLS
	Message     Message       // the request
	Connections int           // 1…MaxConnections
	Streams     int           // requests in flight on a connection: kept so in a closed loop, at most so in an open one; 1…MaxStreams
	Rate        float64       // requests a second over all connections, Poisson; 0: closed loop
	Warm        time.Duration // sent before, not measured
	Duration    time.Duration // measured time; 0: until Count
	Count       int64         // requests measured; 0: until Duration
	Keys        int           // distinct keys, 1…MaxKeys
	Spread      Spread        // "" is Uniform
	Seed        uint64        // of keys and moments: the same seed is the same load
	PID         int           // the server's process: its CPU time is measured; 0: not
	RedisPID    int           // Redis's; 0: not
	Metrics     string        // URL of ratelimitd's /metrics, for where decisions were paid; "": not asked
}

// Validate returns all that is wrong with a load, nil if nothing is.
func (l *Load) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if l.Message.text == nil {
		wrong("no message")
	}
	if l.Connections < 1 || l.Connections > MaxConnections {
		wrong("%d connections: want 1 to %d", l.Connections, MaxConnections)
	}
	if l.Streams < 1 || l.Streams > MaxStreams {
		wrong("%d streams: want 1 to %d", l.Streams, MaxStreams)
	}
	if l.Rate < 0 || l.Rate > 10_000_000 {
		wrong("%v requests a second: want 0 to 10,000,000", l.Rate)
	}
	if l.Keys < 1 || l.Keys > MaxKeys {
		wrong("%d keys: want 1 to %d", l.Keys, MaxKeys)
	}
	if l.Warm < 0 || l.Duration < 0 || l.Warm+l.Duration > MaxDuration {
		wrong("%v after %v of warming: want 0 to %v", l.Duration, l.Warm, MaxDuration)
	}
	if l.Count < 0 || l.Count == 0 && l.Duration == 0 {
		wrong("neither a duration nor a count")
	}
	switch l.Spread {
	case "", Uniform, Zipf, Hot, Sequence:
	default:
		wrong("spread %q: want one of %q", l.Spread, Spreads)
	}
	if l.Metrics != "" {
		if u, err := url.Parse(l.Metrics); err != nil || u.Host == "" {
			wrong("metrics %q: want a URL", l.Metrics)
		}
	}
	return errors.Join(errs...)
}

// draws returns what gives the keys of connection i, numbers below l.Keys. It is that connection's own.
func (l *Load) draws(i int) func() uint64 {
	r := rand.New(rand.NewPCG(l.Seed, uint64(i)))
	keys := uint64(l.Keys)
	switch l.Spread {
	case Zipf:
		return rand.NewZipf(r, 1.1, 1, keys-1).Uint64
	case Hot:
		return func() uint64 { return 0 }
	case Sequence:
		next, step := uint64(i)%keys, uint64(l.Connections)
		return func() uint64 {
			k := next
			next = (next + step) % keys
			return k
		}
	default:
		return func() uint64 { return r.Uint64N(keys) }
	}
}
