package limiter

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// A set is where a key may lie.
type set struct {
	*head
	ways *[recentWays]said
}

// head fills a cache line. A search that finds nothing, as most do, reads no other, nor does one for a place to take.
type head struct {
	tags  [recentWays]uint32 // four bytes of each key
	worth [recentWays]worth
}

// A worth says until when an entry matters, in units of 2^27 ns (134 ms), 0 that its place is free. The lowest is
// forgotten first.
type worth uint32

const (
	something worth = 1 // of every entry, at least

	// firmly is in the worth of what is forgotten after all else, while it matters: a flood of new keys must not send those
	// that were denied to the store, nor lose what is owed to it. It may be there for longer.
	firmly worth = 1 << 31
)

// worthUntil returns the worth of what matters until at.
func worthUntil(at time.Duration) worth {
	return something + worth(min(max(0, at>>27), time.Duration(firmly)-2))
}

func tag(key *store.Key) uint32 { return binary.LittleEndian.Uint32(key[4:]) }

// find returns the entry of key in s, or nil if it is worth less than least: then it is not read.
func (s set) find(key *store.Key, least worth) *said {
	if way := s.wayOf(key, least); way >= 0 {
		return &s.ways[way]
	}
	return nil
}

// wayOf returns where key lies in s, -1 if it does not or is worth less than least.
func (s set) wayOf(key *store.Key, least worth) int {
	t := tag(key)
	for i := range s.tags {
		if s.tags[i] == t && s.worth[i] >= least && s.ways[i].key == *key {
			return i
		}
	}
	return -1
}

// place returns the way of the entry of key, or else one for it to take: a free one, or the one that would matter for the
// shortest time. Whoever writes the entry then sets its worth.
func (r *recent) place(s set, key *store.Key, now time.Duration) int {
	if way := s.wayOf(key, something); way >= 0 {
		return way
	}
	way, least := 0, worth(math.MaxUint32)
	for i, w := range s.worth {
		if w >= firmly && w < firmly|worthUntil(now) { // what it was kept for is over
			w = s.ways[i].worth(now)
			s.worth[i] = w
		}
		if w < least {
			way, least = i, w
		}
	}
	e := &s.ways[way]
	r.collect(e)
	*e = said{key: *key}
	s.tags[way] = tag(key)
	return way
}

// worth returns for how long e matters.
func (e *said) worth(now time.Duration) worth {
	var firm time.Duration
	if e.need > 0 {
		firm = e.until(false)
	}
	if e.owed > 0 {
		firm = max(firm, now+e.limit.Period())
	}
	if firm > now {
		return firmly | worthUntil(firm)
	}
	return worthUntil(e.at + min(e.reset, math.MaxInt64/2)) // when it is full again, nothing was worth remembering
}
