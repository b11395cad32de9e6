package memstore

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// TestTable compares a table with a map under random inserts, writes, removals and sweeps, on keys that are spread and
// on keys that are not.
func TestTable(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	keyOf := map[string]func(int) store.Key{
		"spread":  key,
		"crowded": func(n int) store.Key { return store.Key{byte(n), byte(n >> 8)} },
	}
	for name, key := range keyOf {
		for range 8 {
			tab := table{limit: 1 + r.IntN(1000)}
			want := map[store.Key]int64{} // expiry
			values := map[store.Key]int64{}
			now := int64(1)
			for range plays(5000) {
				now += r.Int64N(3)
				k := key(r.IntN(2 * tab.limit))
				i := tab.find(k, hash(k), now)
				if expires, ok := want[k]; ok && expires <= now {
					delete(want, k)
				}
				if _, ok := want[k]; ok != (i != noSlot) {
					t.Fatalf("%s: key %x: got slot %d, want present: %v", name, k, i, ok)
				}
				if i == noSlot {
					live := 0
					for _, expires := range want {
						if expires > now {
							live++
						}
					}
					room := tab.room(1, now)
					if room != (live < tab.limit) {
						t.Fatalf("%s: got room %v with %d of %d alive", name, room, live, tab.limit)
					}
					if !room {
						continue
					}
					i = tab.insert(k, now)
				} else {
					var s bucket.State
					if tab.read(i, &s); s.Words[0] != values[k] {
						t.Fatalf("%s: key %x: got %d, want %d", name, k, s.Words[0], values[k])
					}
					if r.IntN(4) == 0 {
						tab.remove(i)
						delete(want, k)
						continue
					}
				}
				values[k], want[k] = r.Int64(), now+1+r.Int64N(2000)
				tab.write(i, want[k], &bucket.State{Words: [5]int64{values[k]}})
				if tab.count > tab.limit || int(tab.used) > tab.limit {
					t.Fatalf("%s: got %d buckets in %d slots, want at most %d", name, tab.count, tab.used, tab.limit)
				}
			}
		}
	}
}
