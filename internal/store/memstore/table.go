package memstore

import (
	"encoding/binary"
	"math/bits"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// A table holds the buckets of one shard. Slots lie in chunks that never move, without pointers, so that the garbage
// collector has nothing to look at; an index finds a key's slot by open addressing with linear probing.
//
// It is bounded: when it is full, slots whose bucket is full again or expired are taken back, never another.
type table struct {
	index  []uint64 // of a power of two: a key's hash in the upper half, its slot + 1 in the lower; 0 is empty
	chunks []*[chunkSlots]slot
	free   uint32 // first of the list of free slots (slot + 1), linked through their keys; 0 is none
	used   uint32 // slots ever handed out
	count  int    // buckets held
	limit  int    // most buckets held
	hand   uint32 // where the sweep goes on
	// earliest is not after any bucket's expiry, as far as whole rounds of the sweep have found.
	earliest int64
	round    int64  // the least expiry of the round under way
	left     uint32 // slots left of it
	logs     map[uint32][]bucket.Entry
}

const (
	chunkSlots = 256
	// sweepStep slots are looked at on every insert, so that idle buckets go even while there is room.
	sweepStep = 4
	// sweepMost slots are looked at when there is none: it bounds the time a lock is held.
	sweepMost = 4096
	minIndex  = 16
)

// slot is one bucket, 64 bytes.
type slot struct {
	key     store.Key
	words   [5]int64
	expires int64 // when the bucket is as good as absent, in microseconds; 0 marks a free slot
}

const noSlot = ^uint32(0)

// hash spreads keys over shards by its upper half and over an index by its lower one. Keys are hashes already; mixing them
// keeps a table quick when they are not.
func hash(k store.Key) uint64 {
	x := binary.LittleEndian.Uint64(k[:8]) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(k[8:])*0x9e3779b97f4a7c15, 32)
	x = (x ^ x>>32) * 0xd6e8feb86659fd93 // the multiplications are those of splitmix64 and rrmxmx
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

func (t *table) at(i uint32) *slot { return &t.chunks[i/chunkSlots][i%chunkSlots] }

// find returns the slot of k, whose hash is given, noSlot if there is none or its bucket no longer matters.
func (t *table) find(k store.Key, hash uint64, now int64) uint32 {
	if len(t.index) == 0 {
		return noSlot
	}
	mask := uint32(len(t.index) - 1)
	h := uint32(hash)
	for p := h & mask; ; p = (p + 1) & mask {
		e := t.index[p]
		if e == 0 {
			return noSlot
		}
		if uint32(e>>32) == h {
			if i := uint32(e) - 1; t.at(i).key == k {
				if t.at(i).expires <= now {
					// Taken back here and now, so that no sweep takes a slot that a request holds.
					t.remove(i)
					return noSlot
				}
				return i
			}
		}
	}
}

// room reports whether n more buckets fit, having swept if they do not.
func (t *table) room(n int, now int64) bool {
	if t.count+n <= t.limit {
		return true
	}
	if now < t.earliest {
		return false
	}
	for range sweepMost {
		if t.sweep(now); t.count+n <= t.limit {
			return true
		}
		if now < t.earliest {
			return false // a whole round found nothing
		}
	}
	return false
}

// insert adds a bucket that is not there; the caller has made sure of room.
func (t *table) insert(k store.Key, now int64) uint32 {
	for range sweepStep {
		t.sweep(now)
	}
	if 4*(t.count+1) > 3*len(t.index) {
		t.grow()
	}
	i := t.used
	if t.free != 0 {
		i = t.free - 1
		t.free = binary.LittleEndian.Uint32(t.at(i).key[:])
	} else {
		if i%chunkSlots == 0 {
			t.chunks = append(t.chunks, new([chunkSlots]slot))
		}
		t.used++
		t.left++ // the round under way visits it too
	}
	t.at(i).key = k
	t.place(k, i)
	t.count++
	return i
}

// place enters slot i in the index, which has room.
func (t *table) place(k store.Key, i uint32) {
	mask := uint32(len(t.index) - 1)
	h := uint32(hash(k))
	p := h & mask
	for t.index[p] != 0 {
		p = (p + 1) & mask
	}
	t.index[p] = uint64(h)<<32 | uint64(i+1)
}

// grow doubles the index.
func (t *table) grow() {
	old := t.index
	t.index = make([]uint64, max(minIndex, 1<<bits.Len(uint(len(old)))))
	mask := uint32(len(t.index) - 1)
	for _, e := range old {
		if e != 0 {
			p := uint32(e>>32) & mask
			for t.index[p] != 0 {
				p = (p + 1) & mask
			}
			t.index[p] = e
		}
	}
}

// remove takes slot i back.
func (t *table) remove(i uint32) {
	s := t.at(i)
	mask := uint32(len(t.index) - 1)
	p := uint32(hash(s.key)) & mask
	for uint32(t.index[p]) != i+1 {
		p = (p + 1) & mask
	}
	// Close the gap (Knuth, TAOCP 6.4, algorithm R): an entry may move up unless its home lies behind the gap.
	for q := (p + 1) & mask; t.index[q] != 0; q = (q + 1) & mask {
		home := uint32(t.index[q]>>32) & mask
		if (q-home)&mask >= (q-p)&mask {
			t.index[p] = t.index[q]
			p = q
		}
	}
	t.index[p] = 0

	delete(t.logs, i)
	*s = slot{}
	binary.LittleEndian.PutUint32(s.key[:], t.free)
	t.free = i + 1
	t.count--
}

// sweep looks at the next slot and takes it back if its bucket no longer matters.
func (t *table) sweep(now int64) {
	if t.used == 0 {
		return
	}
	if t.left == 0 { // a round is over; none has found anything before the first
		t.earliest = t.round
		t.round, t.left = 1<<63-1, t.used
	}
	t.hand = (t.hand + 1) % t.used
	t.left--
	if s := t.at(t.hand); s.expires != 0 {
		if s.expires <= now {
			t.remove(t.hand)
		} else {
			t.round = min(t.round, s.expires)
		}
	}
}

// read copies the state of slot i to s, whose entries are reused.
func (t *table) read(i uint32, s *bucket.State) {
	s.Words, s.Log = t.at(i).words, s.Log[:0]
	if t.logs != nil {
		s.Log = append(s.Log, t.logs[i]...)
	}
}

// write keeps s in slot i until expires.
func (t *table) write(i uint32, expires int64, s *bucket.State) {
	slot := t.at(i)
	slot.words, slot.expires = s.Words, expires
	t.earliest = min(t.earliest, expires)
	t.round = min(t.round, expires)
	switch {
	case len(s.Log) > 0:
		if t.logs == nil {
			t.logs = make(map[uint32][]bucket.Entry)
		}
		t.logs[i] = append(t.logs[i][:0], s.Log...)
	case t.logs != nil:
		delete(t.logs, i)
	}
}
