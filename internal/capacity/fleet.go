package capacity

import (
	"errors"
	"fmt"
	"math"
)

// Load is what a fleet is to carry, and what that costs. All must be positive but Spare; shares are in (0, 1].
type Load struct {
	Decisions   float64 // a second, at the peak
	ServerCPU   float64 // µs a decision, of ratelimitd
	RedisCPU    float64 // µs a decision, of Redis
	AtStore     float64 // share of the decisions that ask Redis: those denied from memory, and those of node scope, do not
	Utilisation float64 // share of a processor that may be busy
	Cores       int     // of a node
	Spare       int     // nodes that may be lost, 0 or more
	Identities  float64 // that have a bucket at one time; see LiveBuckets
	Limits      float64 // buckets an identity
	BucketBytes float64 // memory of a bucket
}

// Fleet is what carries a Load.
type Fleet struct {
	Cores      float64 `json:"cores"`       // of all nodes, Spare left out
	Nodes      int     `json:"nodes"`       // Spare included
	RedisCores float64 `json:"redis_cores"` // Redis runs scripts on one processor a shard
	Shards     int     `json:"shards"`      // masters, each with replicas as you like
	Buckets    float64 `json:"buckets"`
	Bytes      float64 `json:"bytes"`       // of all shards' buckets
	ShardBytes float64 `json:"shard_bytes"` // of one's; allow for fragmentation, and for a copy while a snapshot is written
}

// Fleet returns what carries l. The error says which of its numbers makes no sense.
func (l Load) Fleet() (Fleet, error) {
	var errs []error
	for _, n := range []struct {
		name string
		v    float64
		most float64
	}{
		{"decisions", l.Decisions, math.Inf(1)}, {"server CPU", l.ServerCPU, math.Inf(1)}, {"Redis CPU", l.RedisCPU, math.Inf(1)},
		{"share at the store", l.AtStore, 1}, {"utilisation", l.Utilisation, 1}, {"cores", float64(l.Cores), math.Inf(1)},
		{"identities", l.Identities, math.Inf(1)}, {"limits", l.Limits, math.Inf(1)}, {"bucket bytes", l.BucketBytes, math.Inf(1)},
	} {
		errs = append(errs, positive(n.name, n.v, n.most))
	}
	if l.Spare < 0 {
		errs = append(errs, fmt.Errorf("spare nodes %d: want 0 or more", l.Spare))
	}
	if err := errors.Join(errs...); err != nil {
		return Fleet{}, err
	}
	f := Fleet{
		Cores:      l.Decisions * l.ServerCPU / 1e6 / l.Utilisation,
		RedisCores: l.Decisions * l.AtStore * l.RedisCPU / 1e6 / l.Utilisation,
		Buckets:    l.Identities * l.Limits,
	}
	f.Nodes = int(math.Ceil(f.Cores/float64(l.Cores))) + l.Spare
	f.Shards = int(math.Ceil(f.RedisCores))
	f.Bytes = f.Buckets * l.BucketBytes
	f.ShardBytes = f.Bytes / float64(f.Shards)
	return f, nil
}

// LiveBuckets returns how many buckets exist at one time if so many identities come a day, spread evenly, and the bucket of
// each lives for some seconds after its first request: Little's law. A bucket is forgotten when it is full again. No more
// than all of the day's exist if it lives longer.
func LiveBuckets(perDay, seconds float64) float64 {
	return perDay * min(1, seconds/86400)
}

func positive(name string, v, most float64) error {
	if !(v > 0 && v <= most) || math.IsInf(v, 1) {
		if math.IsInf(most, 1) {
			return fmt.Errorf("%s %v: want more than 0", name, v)
		}
		return fmt.Errorf("%s %v: want more than 0, at most %v", name, v, most)
	}
	return nil
}
