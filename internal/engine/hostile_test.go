package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
)

// hostileRules have one of everything. Nothing is ever given back to what is below "watched".
const hostileRules = `
domain: shop
descriptors:
  - key: watched
    descriptors:
      - {key: token_bucket, rate_limit: {unit: hour, requests_per_unit: 1000000, refunds: false}}
      - {key: gcra, rate_limit: {algorithm: gcra, unit: second, requests_per_unit: 4294967295, refunds: false}}
      - {key: leaky_bucket, rate_limit: {algorithm: leaky_bucket, unit: day, requests_per_unit: 100000, refunds: false}}
      - {key: fixed_window, rate_limit: {algorithm: fixed_window, unit: year, requests_per_unit: 4294967295, refunds: false}}
      - {key: sliding_window, rate_limit: {algorithm: sliding_window, unit: minute, requests_per_unit: 1000000, refunds: false}}
      - {key: sliding_log, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 1000, refunds: false}}
      - {key: debt, rate_limit: {unit: hour, requests_per_unit: 100000, debt: 100000, refunds: false}}
  - {key: api, rate_limit: {name: api, unit: hour, requests_per_unit: 10}}
  - {key: log, rate_limit: {algorithm: sliding_log, unit: second, requests_per_unit: 10}}
  - {key: debt, rate_limit: {unit: hour, requests_per_unit: 10, debt: 10}}
  - {key: queue, rate_limit: {algorithm: leaky_bucket, unit: second, requests_per_unit: 10, burst: 5, max_delay: 1s}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: group, quota_mode: true, quota_group: g, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: both, quota_mode: true, quota_group: g, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: free, rate_limit: {unlimited: true, replaces: [{name: api}]}}
  - {key: zero, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: ip, normalize: {ipv6: 64}, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: path, value: "/a/*", detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: path, value: "*/b*", value_to_metric: true, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - key: several
    limits:
      - {name: s1, unit: second, requests_per_unit: 10}
      - {name: s2, algorithm: sliding_window, unit: day, requests_per_unit: 100}
`

const hostileEnvoyRules = `
domain: envoy
profile: envoy
descriptors:
  - {key: api, rate_limit: {name: api, unit: hour, requests_per_unit: 10}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: path, value: "/a/*", detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: zero, rate_limit: {unit: hour, requests_per_unit: 0}}
`

// hostile makes requests that a stranger might send.
type hostile struct{ *rand.Rand }

func pick[T any](h hostile, of ...T) T { return of[h.IntN(len(of))] }

func (h hostile) text() string {
	switch h.IntN(200) {
	case 0:
		return strings.Repeat("x", 1<<h.IntN(17))
	case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
		b := make([]byte, h.IntN(40))
		for i := range b {
			b[i] = byte(h.Uint32())
		}
		return string(b)
	default:
		return pick(h, "", "a", "b", "x*", "a_b", "/a/1", "/a/*", "/c/b", "2001:db8::1", "::ffff:1.2.3.4", "{x}", "a|b:c")
	}
}

var hostileKeys = []string{
	"api", "log", "debt", "queue", "trial", "quota", "group", "both", "free", "zero", "ip", "path", "several", "nothing",
}

func (h hostile) entries() []rule.Entry {
	switch h.IntN(12) {
	case 0:
		return nil
	case 1:
		es := make([]rule.Entry, h.IntN(6))
		for i := range es {
			es[i] = rule.Entry{Key: h.text(), Value: h.text()}
		}
		return es
	case 2, 3, 4:
		return []rule.Entry{{Key: "watched", Value: pick(h, "a", "b")}, {Key: pick(h, watchedKeys...), Value: pick(h, "a", "b")}}
	default:
		return []rule.Entry{{Key: pick(h, hostileKeys...), Value: h.text()}}
	}
}

func (h hostile) hits() uint64 {
	edges := []uint64{
		0, 1, 2, 5, 10, 11, 100, 1000, math.MaxInt32, math.MaxUint32, math.MaxUint32 + 1, bucket.MaxCost - 1, bucket.MaxCost,
		bucket.MaxCost + 1, 1 << 52, 1<<53 + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64 - 5, math.MaxUint64,
	}
	if h.IntN(8) == 0 {
		return h.Uint64()
	}
	return edges[h.IntN(len(edges))]
}

func (h hostile) descriptor() engine.Descriptor {
	d := engine.Descriptor{Entries: h.entries()}
	if h.IntN(3) > 0 {
		d.HasHits, d.Hits = true, h.hits()
	}
	d.Refund = h.IntN(6) == 0
	// What a request brings along for a watched key is another bucket; it must do no harm to that one.
	if h.IntN(5) == 0 {
		d.HasOverride = true
		d.Override = engine.Override{
			Requests: uint32(h.hits()), Unit: pick(h, int32(h.IntN(10)-1), math.MinInt32, math.MaxInt32, int32(h.Uint32())),
			HasMultiplier: h.IntN(3) == 0, Multiplier: uint32(h.hits()),
		}
		if h.IntN(3) > 0 {
			d.Override.Unit = 1 + int32(h.IntN(7))
		}
	}
	return d
}

func (h hostile) request() *engine.Request {
	req := &engine.Request{Domain: pick(h, "shop", "shop", "shop", "envoy", h.text())}
	n := 1 + h.IntN(4)
	switch h.IntN(100) {
	case 0:
		n = 0
	case 1:
		n = 100 + h.IntN(100)
	}
	for range n {
		req.Descriptors = append(req.Descriptors, h.descriptor())
	}
	if h.IntN(3) == 0 {
		req.Hits = uint32(h.hits())
	}
	return req
}

var watchedKeys = []string{"token_bucket", "gcra", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "debt"}

// watch looks at every watched bucket, by the same way as everyone.
type watch struct {
	engine *engine.Engine
	left   map[string]uint32
}

func (w *watch) look(t *testing.T, after *engine.Request) {
	t.Helper()
	for _, key := range watchedKeys {
		for _, tenant := range []string{"a", "b"} {
			for _, value := range []string{"a", "b"} {
				name := tenant + " " + key + " " + value
				req := &engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{{
					Entries: []rule.Entry{{Key: "watched", Value: tenant}, {Key: key, Value: value}}, HasHits: true,
				}}}
				v := new(engine.Verdict)
				if err := w.engine.Decide(t.Context(), req, v); err != nil {
					t.Fatal(err)
				}
				now := v.Statuses[0].Remaining
				if before, ok := w.left[name]; ok && now > before {
					t.Fatalf("%s: got %d left, more than the %d before %+v", name, now, before, after)
				}
				w.left[name] = now
			}
		}
	}
}

// A million requests, most of them well-formed, none of them kind: each gets a decision that makes sense, and no bucket
// ever gains by what it is asked.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	n, every := 1_000_000, 50
	if raceEnabled {
		n = 50_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := hostile{rand.New(rand.NewPCG(seed, 0))}
	snapshot, _, err := rule.Load([]rule.File{
		{Name: "a.yaml", Data: []byte(hostileRules)}, {Name: "b.yaml", Data: []byte(hostileEnvoyRules)},
	}, rule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := new(snapshots)
	s.Store(snapshot)
	// Time stands still: whatever comes back came back by hits.
	clock := func() time.Time { return time.Date(2026, 5, 5, 5, 5, 5, 0, time.UTC) }
	newHostile := func() *watch {
		return &watch{newEngine(t, "", engine.Options{
			Snapshots: s, Store: memstore.New(memstore.Options{Now: clock}), Now: clock, Registerer: prometheus.NewRegistry(),
			Hold: func(context.Context, time.Duration) error { return nil },
		}), make(map[string]uint32)}
	}
	w := newHostile()
	wellFormed, over := 0, 0
	v := new(engine.Verdict)
	for i := range n {
		if i%(n/20) == 0 {
			w = newHostile() // full buckets again, or soon all of them are empty
		}
		req := h.request()
		err := w.engine.Decide(t.Context(), req, v)
		switch {
		case req.Domain == "":
			if !errors.Is(err, engine.ErrEmptyDomain) {
				t.Fatalf("got error %v, want %v", err, engine.ErrEmptyDomain)
			}
			continue
		case len(req.Descriptors) == 0:
			if !errors.Is(err, engine.ErrNoDescriptors) {
				t.Fatalf("got error %v, want %v", err, engine.ErrNoDescriptors)
			}
			continue
		case err != nil:
			t.Fatalf("%+v: %v", req, err)
		}
		wellFormed++
		if v.Over {
			over++
		}
		if fault := nonsense(req, v); fault != "" {
			t.Fatalf("%s: %+v for %+v", fault, v, req)
		}
		if i%every == 0 {
			w.look(t, req)
		}
	}
	t.Logf("%d of %d well-formed, %d refused", wellFormed, n, over)
	if wellFormed < n*9/10 || over == 0 || over == wellFormed {
		t.Errorf("got %d of %d well-formed, %d refused: these requests test nothing", wellFormed, n, over)
	}
}

// nonsense says what no answer may be.
func nonsense(req *engine.Request, v *engine.Verdict) string {
	if len(v.Statuses) != len(req.Descriptors) {
		return "not one status a descriptor"
	}
	if v.Nearest < -1 || v.Nearest >= len(v.Statuses) || v.WouldDeny {
		return "impossible verdict"
	}
	if v.Nearest >= 0 && (!v.Statuses[v.Nearest].HasLimit || v.Statuses[v.Nearest].Shadow) {
		return "nearest has no limit to speak of"
	}
	// The reference's rule may settle on another status that has nothing left either.
	if v.Over && !v.Envoy && len(v.Statuses) <= 4 && (v.Nearest < 0 || !v.Statuses[v.Nearest].Over) {
		return "refused by nobody"
	}
	for i := range v.Statuses {
		st := &v.Statuses[i]
		switch {
		case st.Over && (st.Remaining != 0 || !st.HasLimit || st.Shadow || st.RetryAfter < bucket.Never || st.RetryAfter == 0):
			return fmt.Sprintf("status %d: impossible refusal", i)
		case st.Reset < 0 || !st.Over && st.RetryAfter != 0:
			return fmt.Sprintf("status %d: impossible wait", i)
		case st.HasLimit && int64(st.Remaining) > st.Quota:
			return fmt.Sprintf("status %d: more left than there can be", i)
		case st.HasLimit && (st.Multiplier < 1 || st.Unit == bucket.NoUnit || st.Window < 0):
			return fmt.Sprintf("status %d: impossible limit", i)
		}
	}
	return ""
}
