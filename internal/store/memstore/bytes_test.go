package memstore

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

func TestBytesAreWhatTheHeapGrewBy(t *testing.T) { // not parallel: it looks at the heap
	const buckets = 200_000
	limit, err := bucket.New(bucket.Config{Algorithm: bucket.TokenBucket, Hits: 1000, Unit: bucket.Hour})
	if err != nil {
		t.Fatal(err)
	}
	held := func() uint64 {
		runtime.GC()
		runtime.GC() // what pools hold outlives one
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s := New(Options{MaxBuckets: 2 * buckets})
	before := held()
	charge, out := make([]store.Charge, 1), make([]store.Decision, 1)
	for i := range uint64(buckets) {
		charge[0] = store.Charge{Limit: limit, Hits: 1}
		binary.LittleEndian.PutUint64(charge[0].Key[:8], i*0x9e3779b97f4a7c15)
		if err := s.Take(context.Background(), charge, out); err != nil {
			t.Fatal(err)
		}
	}
	grew, bytes := held()-before, s.Bytes()
	if bytes < buckets*64 || bytes*10 < grew*9 || bytes*10 > grew*11 {
		t.Errorf("%d buckets: got %d bytes, want about the %d that the heap grew by", s.Len(), bytes, grew)
	}
}
