package transport

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// outageWait is the shortest Retry-After of a denial whose limit could not be asked: the store needs a moment.
const outageWait = 5 * time.Second

// spreadEpoch is how long the spread of one caller stays as it is, so that asking again does not draw another.
const spreadEpoch = 10 * time.Second

// retryAfter returns the Retry-After of a denial by s in whole seconds, at least 1. ok is false if no wait helps.
//
// With jitter it adds a part of spread(wait) that depends on the request and the epoch alone: callers refused together
// come back apart, and a caller that asks again is told the same.
func (a *answerer) retryAfter(c *call, s *engine.Status, now time.Time) (seconds int64, ok bool) {
	wait := s.RetryAfter
	switch {
	case !s.Over:
		return 0, false
	case s.Unpaid:
		wait = max(wait, outageWait)
	case wait < 0:
		return 0, false
	}
	if a.retryJitter {
		share, _ := bits.Mul64(requestHash(&c.req, now.UnixNano()/int64(spreadEpoch)), uint64(spread(wait))+1)
		wait += time.Duration(share)
	}
	return max(ceilSeconds(wait), 1), true
}

// spread returns over how long callers that wait so long are spread: a tenth of the wait, at least 1 s, at most 30 s.
func spread(wait time.Duration) time.Duration {
	return min(30*time.Second, max(time.Second, wait/10))
}

// requestHash hashes the domain and the entries of req, which tell a caller as well as its request can, and the epoch.
// It is the same on every node.
func requestHash(req *engine.Request, epoch int64) uint64 {
	var d xxhash.Digest
	d.Reset()
	var n [8]byte
	number := func(v uint64) {
		binary.LittleEndian.PutUint64(n[:], v)
		_, _ = d.Write(n[:])
	}
	text := func(s string) {
		number(uint64(len(s)))
		_, _ = d.WriteString(s)
	}
	number(uint64(epoch))
	text(req.Domain)
	for i := range req.Descriptors {
		number(uint64(len(req.Descriptors[i].Entries)))
		for _, e := range req.Descriptors[i].Entries {
			text(e.Key)
			text(e.Value)
		}
	}
	return d.Sum64()
}
