package engine

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// Request is what a caller asks. The engine reads it during the call only.
type Request struct {
	Domain      string
	Descriptors []Descriptor
	Hits        uint32 // hits_addend of the request; 0 means 1
}

// Descriptor is one descriptor of a request. The zero value matches no rule.
type Descriptor struct {
	Entries     []rule.Entry
	Hits        uint64 // its own hits_addend, if HasHits: 0 is a peek
	HasHits     bool
	Refund      bool // is_negative_hits: Hits are given back
	HasOverride bool
	Override    Override
}

// Override is a limit carried by a request (RateLimitOverride), as it came: not yet valid.
type Override struct {
	Requests      uint32
	Unit          int32  // number of envoy.type.v3.RateLimitUnit, any value
	Multiplier    uint32 // unit_multiplier, if HasMultiplier
	HasMultiplier bool
}

// asked returns the hits that a descriptor asks for: its own, else the request's, else 1.
func asked(req *Request, d *Descriptor) uint64 {
	switch {
	case d.HasHits:
		return d.Hits
	case req.Hits == 0:
		return 1
	default:
		return uint64(req.Hits)
	}
}

// cost clamps hits from a request to what every limit refuses anyway, so that no arithmetic below can overflow.
func cost(hits uint64) int64 { return int64(min(hits, bucket.MaxCost)) }
