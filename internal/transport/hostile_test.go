package transport

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
)

const hostileRules = `
domain: shop
descriptors:
  - {key: api, rate_limit: {name: api, unit: hour, requests_per_unit: 10}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: path, value: "/a/*", detailed_metric: true, metadata: {team: a}, rate_limit: {unit: week, requests_per_unit: 10}}
  - key: user
    limits: [{unit: second, requests_per_unit: 10}, {unit: day, unit_multiplier: 3, requests_per_unit: 100}]
`

// hostile writes requests that a stranger might send, byte by byte.
type hostile struct{ *rand.Rand }

func (h hostile) text() string {
	switch h.IntN(100) {
	case 0:
		return strings.Repeat("x", 1<<h.IntN(15))
	case 1, 2, 3, 4, 5, 6, 7, 8, 9:
		b := make([]byte, h.IntN(40))
		for i := range b {
			b[i] = byte(h.Uint32())
		}
		return string(b)
	}
	return [...]string{"", "api", "trial", "never", "free", "path", "/a/1", "user", "u1", "x\r\ny", "{z}"}[h.IntN(11)]
}

func (h hostile) number() uint64 {
	return [...]uint64{0, 1, 2, 7, 10, 100, math.MaxInt32, math.MaxUint32, 1 << 32, 1 << 33, 1 << 53, math.MaxInt64, 1 << 63, math.MaxUint64}[h.IntN(14)]
}

func (h hostile) descriptor() (w wire) {
	for range 1 + h.IntN(2) {
		w = w.bytes(1, wire{}.text(1, h.text()).text(2, h.text()))
	}
	if h.IntN(4) == 0 {
		w = w.bytes(2, wire{}.varint(1, h.number()).varint(2, uint64(h.IntN(10))).bytes(3, wire{}.varint(1, h.number())))
	}
	if h.IntN(2) == 0 {
		w = w.bytes(3, wire{}.varint(1, h.number()))
	}
	if h.IntN(8) == 0 {
		w = w.varint(4, 1)
	}
	return w
}

// request returns a message and, if it is one that must be decided, the number of its descriptors; else 0.
func (h hostile) request() (w wire, descriptors int) {
	domain := h.text()
	if h.IntN(2) == 0 {
		domain = "shop"
	}
	descriptors = h.IntN(4)
	if h.IntN(100) == 0 {
		descriptors = h.IntN(200)
	}
	w = w.text(1, domain)
	for range descriptors {
		w = w.bytes(2, h.descriptor())
	}
	if h.IntN(3) == 0 {
		w = w.varint(3, h.number())
	}
	if domain == "" {
		descriptors = 0
	}
	if h.IntN(12) == 0 { // one in twelve is broken
		descriptors = 0
		w[h.IntN(len(w))] = byte(h.Uint32())
		w = w[:h.IntN(len(w)+1)]
	}
	return w, descriptors
}

// TestHostileRequests sends a million requests through the codec, the engine and the store. Each that is well-formed and
// names a domain and a descriptor gets a decision, and no other error exists than the three.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	n := 1_000_000
	if raceEnabled || testing.Short() {
		n = 50_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := hostile{rand.New(rand.NewPCG(seed, 0))}
	now := noon
	clock := func() time.Time { return now }
	keyer, err := store.NewKeyer([]byte("sixteen bytes or more"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{
		Snapshots: snapshots{load(t, hostileRules)}, Store: memstore.New(memstore.Options{Now: clock}), Keyer: keyer, Now: clock,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := newService(Options{
		Decider: e, Now: clock, ResponseMetadata: true, RetryJitter: true, Problem: true, Headers: Headers{IETF: true, Legacy: LegacyEnvoy},
	}.withDefaults(), answered{})
	decided := 0
	for range n {
		now = now.Add(time.Duration(h.Int64N(int64(10 * time.Millisecond))))
		msg, descriptors := h.request()
		c := newCall()
		c.undecodable = c.decode(msg)
		resp, err := s.handle(context.Background(), c)
		c.release()
		if err != nil {
			if descriptors > 0 || status.Code(err) != codes.InvalidArgument {
				t.Fatalf("request %x: %v", []byte(msg), err)
			}
			continue
		}
		decided++
		m := unmarshalled(t, *resp.(*[]byte))
		if m.OverallCode == rlsv3.RateLimitResponse_UNKNOWN {
			t.Fatalf("request %x: answered UNKNOWN", []byte(msg))
		}
		if descriptors > 0 && len(m.Statuses) != descriptors {
			t.Fatalf("request %x: got %d statuses, want %d", []byte(msg), len(m.Statuses), descriptors)
		}
		for _, st := range m.Statuses {
			if st.Code == rlsv3.RateLimitResponse_UNKNOWN {
				t.Fatalf("request %x: a status is UNKNOWN", []byte(msg))
			}
		}
	}
	if decided < n/2 {
		t.Errorf("decided %d of %d, want most", decided, n)
	}
}
