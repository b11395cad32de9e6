package redisstore

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of TestAgree; 0 takes one from the clock")
	worldFlag = flag.Int("worlds", 0, "worlds of TestAgree; 0 means as many as come to 10^5 charges")
)

// world is a few buckets, the limits they may be under, and a clock, in Redis and in the model.
type world struct {
	choices
	t     testing.TB
	store *Store
	redis *redis.Client
	model model
	now   int64 // microseconds
	slots []slot
	took  int            // charges
	seen  map[string]int // what happened how often
}

// slot is one bucket.
type slot struct {
	key    store.Key
	family bucket.Family
	limits []*bucket.Limit // the versions its limit alternates between
	ticks  []int64         // of decisions, to be given back
}

func newWorld(t testing.TB, s *Store, client *redis.Client, c choices, seen map[string]int) *world {
	w := &world{choices: c, t: t, store: s, redis: client, seen: seen, model: model{
		states: make(map[store.Key]bucket.State), ttls: make(map[store.Key]int64),
	}}
	w.now = pick(c, 1_835_395_200_000_000, 1_835_395_200_000_000, 1_774_745_999_999_999, 1, 1_000_000, bucket.MaxTime-large(c, 45))
	for _, family := range []bucket.Family{bucket.Credit, bucket.Credit, bucket.Window, bucket.Window, bucket.Log} {
		sl := slot{family: family, ticks: []int64{0}}
		copy(sl.key[:], fmt.Sprintf("agree%d", len(w.slots)))
		for range 1 + c.n(3) {
			sl.limits = append(sl.limits, limitOf(c, family))
		}
		w.slots = append(w.slots, sl)
	}
	if err := client.FlushDB(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	return w
}

// request is one request and when it is made.
type request struct {
	now     int64
	charges []store.Charge
}

// request draws one, moving the clock.
func (w *world) request() request {
	only := w.n(2 * len(w.slots)) // half of the requests stay on one bucket
	charges := make([]store.Charge, pick(w.choices, 1, 1, 1, 1, 2, 2, 3, 5, 12))
	for i := range charges {
		at := only
		if at >= len(w.slots) {
			at = w.n(len(w.slots))
		}
		sl := &w.slots[at]
		l := sl.limits[w.n(len(sl.limits))]
		if i == 0 && w.n(2) == 0 {
			w.now = max(1, min(w.now+stepOf(w.choices, l), bucket.MaxTime))
		}
		charges[i] = chargeOf(w.choices, sl.key, l, sl.ticks)
	}
	w.took += len(charges)
	return request{w.now, charges}
}

// alike returns a request that differs from another in its keys alone, if at all.
func (w *world) alike(r request) request {
	charges, swap := slices.Clone(r.charges), w.n(2) // the credit buckets for each other, and the windows
	for i := range charges {
		at := slices.IndexFunc(w.slots, func(sl slot) bool { return sl.key == charges[i].Key })
		if other := at ^ swap; other < len(w.slots) {
			charges[i].Key = w.slots[other].key
		}
	}
	w.took += len(charges)
	return request{r.now, charges}
}

// spoil puts something strange in the place of a bucket.
func (w *world) spoil() {
	sl := &w.slots[w.n(len(w.slots))]
	key := sl.key.String()
	ctx := context.Background()
	pipe := w.redis.Pipeline()
	pipe.Del(ctx, key)
	var state bucket.State
	if w.n(4) == 0 {
		pipe.RPush(ctx, key, "another type")
	} else {
		v := garbage(w.choices)
		if sl.family == bucket.Log && w.n(3) > 0 {
			v = longLog(w.choices, w.now)
		}
		pipe.Set(ctx, key, v, 0)
		state = readState(sl.family, v)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		w.t.Fatal(err)
	}
	w.model.states[sl.key] = state
	delete(w.model.ttls, sl.key)
}

// round takes several requests in one call of the script, and compares each answer and all that is stored.
func (w *world) round(requests int) {
	w.t.Helper()
	ctx := context.Background()
	if w.n(6) == 0 {
		w.spoil()
	}
	batch := make([]request, requests)
	calls := make([]*call, requests)
	for i := range batch {
		if i > 0 && w.n(3) == 0 {
			batch[i] = w.alike(batch[i-1])
		} else {
			batch[i] = w.request()
		}
		calls[i] = newCall()
		now := func() time.Time { return time.UnixMicro(batch[i].now) }
		if err := calls[i].encode(batch[i].charges, whole, now); err != nil {
			w.t.Fatal(err)
		}
	}
	start := time.Now()
	if err := w.store.eval(ctx, calls...); err != nil {
		w.t.Fatalf("script: %v\n%s", err, w.describe(batch))
	}
	for i, r := range batch {
		got := make([]store.Decision, len(r.charges))
		calls[i].decode(got)
		want := w.model.take(r.charges, r.now)
		if diff := cmp.Diff(want, got); diff != "" {
			w.t.Fatalf("request %d of the round: -go +lua:\n%s%s", i, diff, w.describe(batch[:i+1]))
		}
		for k, d := range got {
			w.remember(r.charges[k].Key, d.Tick)
			w.note(r.charges[k], d)
		}
	}
	w.compareStored(start, batch)
}

// remember keeps the latest ticks of a bucket.
func (w *world) remember(key store.Key, tick int64) {
	if tick == 0 {
		return
	}
	for i := range w.slots {
		if sl := &w.slots[i]; sl.key == key {
			sl.ticks = append(sl.ticks, tick)
			if len(sl.ticks) > 8 {
				sl.ticks = sl.ticks[1:]
			}
		}
	}
}

// compareStored compares what Redis stores with the model's states, and how long it will.
func (w *world) compareStored(start time.Time, batch []request) {
	w.t.Helper()
	ctx := context.Background()
	pipe := w.redis.Pipeline()
	values := make([]*redis.SliceCmd, len(w.slots))
	ttls := make([]*redis.DurationCmd, len(w.slots))
	for i, sl := range w.slots {
		values[i] = pipe.MGet(ctx, sl.key.String())
		ttls[i] = pipe.PTTL(ctx, sl.key.String())
	}
	if _, err := pipe.Exec(ctx); err != nil {
		w.t.Fatal(err)
	}
	elapsed := time.Since(start) + 2*time.Millisecond // Redis counts whole milliseconds
	for i, sl := range w.slots {
		v, _ := values[i].Val()[0].(string)
		got, want := readState(sl.family, []byte(v)), w.model.states[sl.key]
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			w.t.Fatalf("stored %s bucket %d: -go +lua:\n%s%s", sl.family, i, diff, w.describe(batch))
		}
		ttl, written := w.model.ttls[sl.key]
		if !written || want.Absent() {
			if written && ttls[i].Val() != -2 {
				w.t.Fatalf("%s bucket %d is full: got a key with TTL %v, want none\n%s", sl.family, i, ttls[i].Val(), w.describe(batch))
			}
			continue
		}
		if ttls[i].Val() < 0 {
			w.t.Fatalf("%s bucket %d: got TTL %v, want one\n%s", sl.family, i, ttls[i].Val(), w.describe(batch))
		}
		// Compared at the round that wrote it: later ones measure real time against the model's.
		delete(w.model.ttls, sl.key)
		longest := time.Duration((ttl+999)/1000)*time.Millisecond + spareTTL
		if got := ttls[i].Val(); got > longest || got < longest-elapsed {
			w.t.Fatalf("%s bucket %d: got TTL %v, want %v less at most %v\n%s", sl.family, i, got, longest, elapsed, w.describe(batch))
		}
	}
}

func (w *world) describe(batch []request) string {
	text := ""
	for _, r := range batch {
		text += fmt.Sprintf("at %d:\n", r.now)
		for _, c := range r.charges {
			text += fmt.Sprintf("  %.6s %+v hits=%d atleast=%d tick=%d delay=%v vote=%d book=%d\n",
				c.Key[:], c.Limit.Config(), c.Hits, c.AtLeast, c.Tick, c.MaxDelay, c.Vote, c.Book)
		}
	}
	return text
}

// openAgree returns a store on a Redis of its own; the tests use its script alone.
func openAgree(t testing.TB) (*Store, *redis.Client) {
	server := redistest.Start(t)
	s, err := New(Options{URL: server.URL(), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, server.Client()
}

// TestAgree draws more than 10^5 charges and holds Go and Lua to the same answers, stored states and times to live.
func TestAgree(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	s, client := openAgree(t)
	took, seen := 0, make(map[string]int)
	for i := 0; took < 100_000 && *worldFlag == 0 || i < *worldFlag; i++ {
		t.Logf("seed %d world %d", seed, i)
		w := newWorld(t, s, client, random{rand.New(rand.NewPCG(seed, uint64(i)))}, seen)
		for range 12 {
			w.round(1 + w.n(16))
		}
		took += w.took
	}
	t.Logf("%d charges: %v", took, seen)
	for _, what := range events {
		for _, f := range []bucket.Family{bucket.Credit, bucket.Window, bucket.Log} {
			switch {
			case what == delayed && f != bucket.Credit, what == long && f != bucket.Log:
			case seen[f.String()+": "+what] == 0:
				t.Errorf("%s: %s: it never happened", f, what)
			}
		}
	}
}

// FuzzAgree is TestAgree with the fuzzer's choices.
func FuzzAgree(f *testing.F) {
	s, client := openAgree(f)
	for seed := range uint64(20) {
		data := make([]byte, 500)
		r := rand.New(rand.NewPCG(seed, 0))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(t, s, client, &fuzzed{data}, make(map[string]int))
		for w.more() && w.took < 1000 {
			w.round(1 + w.n(8))
		}
	})
}
