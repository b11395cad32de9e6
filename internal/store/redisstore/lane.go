package redisstore

import (
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// A lane is the way to one shard: the requests that wait for it, and the node that takes them now.
type lane struct {
	number int
	name   string
	calls  *pending
	node   atomic.Pointer[node]   // nil: nobody knows one
	probe  atomic.Pointer[string] // a key of the shard that is no bucket's; nil: the shard has no keys
	down   atomic.Bool            // the last call went wrong, or took longer than anybody waits
}

// addLane makes a lane and the goroutines that carry its requests. One goroutine at a time may call it.
func (s *Store) addLane(name string) *lane {
	before := s.lanes.all()
	l := &lane{number: len(before), name: name, calls: newPending(s.timeout)}
	if s.redis.Kind() != clusterKind {
		key := probeKey
		l.probe.Store(&key)
	}
	list := append(slices.Clip(before), l)
	s.lanes.list.Store(&list)
	select {
	case <-s.closing: // Close may not have seen it
		l.calls.close()
	default:
	}
	for range s.tuning.senders {
		s.workers.Go(func() { s.send(l) })
	}
	return l
}

// tuning are the numbers of group commit. docs/redis.md has the measurements they come from.
type tuning struct {
	senders int // calls of a shard in flight at once
	charges int // a batch takes no further request once it has this many charges: it bounds how long Redis is busy
	queue   int // a part of a request does not wait for a sender behind so many calls
}

// mostBatched is the most charges that a batch may have before its last request: an errand numbers its keys by a byte.
const mostBatched = 256 - store.MaxCharges

var tuned = tuning{senders: 2, charges: 128, queue: 1024}

// send carries a lane's batches until the store closes. It waits for a first request and takes along all that have
// gathered behind it, without waiting for more: an idle store sends at once, a busy one sends what came while all its
// senders were in flight.
func (s *Store) send(l *lane) {
	var b batch
	for l.calls.wait() {
		// Let those that are about to ask be heard: a burst of requests wakes as many goroutines.
		runtime.Gosched()
		l.calls.take(&b, s.tuning.charges)
		s.deliver(l, &b)
	}
}

// batch is the requests of one call of Redis. The zero value is empty.
type batch struct {
	calls   []*call
	charges int
	errands []*errand // reused
}

// group makes an errand a slot: in a Cluster a script may touch no more.
func (b *batch) group() []*errand {
	slices.SortStableFunc(b.calls, func(x, y *call) int { return int(x.slot) - int(y.slot) })
	errands := b.errands[:0]
	for from := 0; from < len(b.calls); {
		to := from + 1
		for to < len(b.calls) && b.calls[to].slot == b.calls[from].slot {
			to++
		}
		if len(errands) == len(b.errands) {
			b.errands = append(b.errands, new(errand))
		}
		errands = b.errands[:len(errands)+1]
		errands[len(errands)-1].pack(b.calls[from:to])
		from = to
	}
	return errands
}

// clear empties the batch once all its calls are answered.
func (b *batch) clear() {
	for _, e := range b.errands {
		e.clear()
	}
	clear(b.calls)
	b.calls, b.charges = b.calls[:0], 0
}
