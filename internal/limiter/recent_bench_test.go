package limiter

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// BenchmarkRecent is what the table adds to a request on a bucket drawn from so many: is it denied, and what was said of it.
func BenchmarkRecent(b *testing.B) {
	l := limit(b, bucket.Config{Hits: 1_000_000, Unit: bucket.Hour})
	for _, keys := range []uint64{1 << 10, 100_000, 1 << 24} { // few, more than there are places, all new
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			r := newRecent(1 << 16)
			charges := []store.Charge{{Limit: l, Hits: 1}}
			out := []store.Decision{{Allowed: true, Granted: 1, Remaining: 10, ResetAfter: time.Hour}}
			b.ReportAllocs()
			random := rand.New(rand.NewPCG(1, 2))
			for i := range b.N {
				now := time.Duration(i+1) * 16 * time.Microsecond
				n := random.Uint64N(keys)
				binary.LittleEndian.PutUint64(charges[0].Key[:], n*0x9e3779b97f4a7c15)
				binary.LittleEndian.PutUint64(charges[0].Key[8:], n*0xd1342543de82ef95+n<<32)
				if r.deny(charges, out, now) {
					b.Fatal("denied")
				}
				out[0].Origin = store.FromStore
				r.note(charges, out, now, now+1)
			}
		})
	}
}
