package memstore

import (
	"context"
	"crypto/sha256"
	"math/bits"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// DefaultMaxBuckets is what Options.MaxBuckets 0 means.
const DefaultMaxBuckets = 2_000_000

// Options configures New. The zero value is usable.
type Options struct {
	// MaxBuckets is the most buckets kept, the one overflow bucket a rule aside; 0 means DefaultMaxBuckets, about 170 MB.
	// A bucket takes about 85 bytes, one of a sliding_log 16 more for every entry. Idle buckets are forgotten; one that
	// matters never is. When all do, a charge on a new key is admitted and counted if its limit fails open; else
	// the new keys of a rule share one bucket.
	MaxBuckets int
	// Now is the clock; nil means time.Now. It may step.
	Now func() time.Time
	// Registerer gets the store's metrics; nil means none.
	Registerer prometheus.Registerer
}

// Store keeps buckets in this process. It is safe for concurrent use, and made by New only.
type Store struct {
	now      func() time.Time
	shards   []shard // a power of two, at most maxShards
	overflow shard   // one bucket a rule; locked after all others
	scratch  sync.Pool
	full     prometheus.Counter
}

var _ store.Store = (*Store)(nil)

// shard is one lock and what it guards. The padding keeps two locks off one cache line.
type shard struct {
	mu sync.Mutex
	table
	_ [64]byte
}

const (
	maxShards = 64 // as many as a word has bits
	// perShard is the least number of buckets that a shard of its own is worth: with fewer, chance fills one
	// long before the others.
	perShard = 4096
)

// New returns an empty store.
func New(o Options) *Store {
	if o.MaxBuckets <= 0 {
		o.MaxBuckets = DefaultMaxBuckets
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	n := 1
	for n < maxShards && o.MaxBuckets/(2*n) >= perShard {
		n *= 2
	}
	s := &Store{now: o.Now, shards: make([]shard, n)}
	for i := range s.shards {
		s.shards[i].limit = o.MaxBuckets / n
		if i < o.MaxBuckets%n {
			s.shards[i].limit++
		}
	}
	s.overflow.limit = 1 << 31
	s.scratch.New = func() any { return new(request) }
	s.full = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ratelimitd_memstore_overflow_total",
		Help: "Charges on keys for which the table had no room: admitted if the limit fails open, else paid from one bucket a rule.",
	})
	if o.Registerer != nil {
		o.Registerer.MustRegister(s.full, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ratelimitd_memstore_buckets",
			Help: "Buckets held in memory, idle ones that were not yet swept included.",
		}, func() float64 { return float64(s.Len()) }))
	}
	return s
}

// Len returns the number of buckets held, idle ones that were not yet swept included.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		n += s.shards[i].size()
	}
	return n + s.overflow.size()
}

func (s *shard) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Take implements store.Store. It returns nil, and does not look at ctx. It does not allocate, but to keep new buckets and
// the entries of logs.
func (s *Store) Take(_ context.Context, charges []store.Charge, out []store.Decision) error {
	if len(charges) == 0 {
		return nil
	}
	r := s.scratch.Get().(*request)
	r.start(charges)
	locked := s.lock(r)
	// The clock is read under the locks, so that time does not step back between two requests on one key.
	r.now = bucket.Micros(s.now())
	s.load(r, charges)
	r.decide(charges, out)
	s.save(r)
	if r.overflown {
		s.overflow.mu.Unlock()
	}
	s.unlock(locked)
	s.scratch.Put(r)
	return nil
}

// shardOf returns the number of the shard that keeps keys of a hash.
func (s *Store) shardOf(hash uint64) int { return int(hash>>32) & (len(s.shards) - 1) }

// lock takes the locks of all the charges' shards in the order of their numbers, so that no two requests wait for each
// other, and returns a bit a lock.
func (s *Store) lock(r *request) uint64 {
	var set uint64
	for i := range r.asked {
		set |= 1 << s.shardOf(r.asked[i].hash)
	}
	for left := set; left != 0; left &= left - 1 {
		s.shards[bits.TrailingZeros64(left)].mu.Lock()
	}
	return set
}

func (s *Store) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

// load finds the bucket of every charge and copies its state. A key for which there is no room is given its rule's
// overflow bucket, or none if its limit fails open.
func (s *Store) load(r *request, charges []store.Charge) {
	var reserved [maxShards]int // new keys of this request, a shard
	for i := range charges {
		c := &charges[i]
		if b := r.find(c.Key); b >= 0 {
			r.asked[i].bucket = b
			continue
		}
		n := s.shardOf(r.asked[i].hash)
		t := &s.shards[n].table
		slot := t.find(c.Key, r.asked[i].hash, r.now)
		if slot == noSlot {
			if !t.room(reserved[n]+1, r.now) {
				s.full.Inc()
				r.asked[i].bucket = s.loadOverflow(r, c)
				continue
			}
			reserved[n]++
		}
		r.asked[i].bucket = r.add(c.Key, t, slot)
	}
}

// loadOverflow returns the bucket that stands in for that of c.
func (s *Store) loadOverflow(r *request, c *store.Charge) int {
	if c.Policy == nil || c.Policy.OnFailure == bucket.FailOpen {
		return r.add(c.Key, nil, noSlot)
	}
	if !r.overflown {
		s.overflow.mu.Lock()
		r.overflown = true
	}
	k := overflowKey(c)
	if b := r.find(k); b >= 0 {
		return b
	}
	return r.add(k, &s.overflow.table, s.overflow.find(k, hash(k), r.now))
}

// overflowKey returns the key of the bucket that the new keys of a limit share when the table is full: one a rule, family
// and period, since several limits may stand on one rule.
func overflowKey(c *store.Charge) store.Key {
	sum := sha256.Sum256([]byte(c.Policy.Rule))
	k := store.Key(sum[:len(store.Key{})])
	k[0] ^= byte(c.Limit.Family())
	seconds := uint32(c.Limit.Period() / time.Second)
	for i := range 4 {
		k[1+i] ^= byte(seconds >> (8 * i))
	}
	return k
}

// save writes the states that changed.
func (s *Store) save(r *request) {
	for i := range r.buckets {
		b := &r.buckets[i]
		if !b.changed || b.table == nil {
			continue
		}
		switch {
		case b.state.Absent() && b.slot != noSlot:
			b.table.remove(b.slot)
		case b.state.Absent():
		default:
			if b.slot == noSlot {
				b.slot = b.table.insert(b.key, r.now)
			}
			b.table.write(b.slot, r.now+b.ttl, &b.state)
		}
	}
}
