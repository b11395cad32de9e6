package engine

import (
	"fmt"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// maxOverrides bounds the limits kept that requests brought along: a caller who asks for ever new numbers pays for
// making each, and cannot grow memory. One costs about 500 bytes.
const maxOverrides = 4096

// wireUnits are the units by the numbers of envoy.type.v3.RateLimitUnit, and 7, which the reference service takes for a
// week although that enum lacks it.
var wireUnits = [...]bucket.Unit{
	1: bucket.Second, 2: bucket.Minute, 3: bucket.Hour, 4: bucket.Day, 5: bucket.Month, 6: bucket.Year, 7: bucket.Week,
}

// overrideKey is all that the limit of an override depends on. Two requests of the same numbers share the limit; their
// buckets differ by their values.
type overrideKey struct {
	domain     *rule.Domain
	rule       *rule.Rule // nil: none matched
	requests   uint32
	unit       bucket.Unit
	multiplier uint32
}

// overrides keeps the limits made for requests' own numbers. The zero value is empty.
type overrides struct {
	mu sync.RWMutex
	m  map[overrideKey]*limit // a nil limit: numbers that no bucket can keep
}

// override returns the limit that o asks for on top of rule r of domain d, or nil if it is not valid: a unit that is
// unknown or absent, a multiplier of 0, or numbers that the rule's algorithm cannot keep. More than most requests a unit
// are cut to it. r is nil if nothing matched.
func (v *view) override(d *rule.Domain, r *rule.Rule, o Override, most uint32) *limit {
	k := overrideKey{domain: d, rule: r, requests: min(o.Requests, most), multiplier: 1}
	if o.Unit > 0 && int(o.Unit) < len(wireUnits) {
		k.unit = wireUnits[o.Unit]
	}
	if o.HasMultiplier {
		k.multiplier = o.Multiplier
	}
	if k.unit == bucket.NoUnit || k.multiplier == 0 {
		return nil
	}
	c := &v.overrides
	c.mu.RLock()
	l, ok := c.m[k]
	c.mu.RUnlock()
	if ok {
		return l
	}
	l = v.newOverride(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = make(map[overrideKey]*limit)
	}
	for other := range c.m {
		if len(c.m) < maxOverrides {
			break
		}
		delete(c.m, other) // whichever comes first; the order of a map is random
	}
	c.m[k] = l
	return l
}

// newOverride makes the limit of k: its numbers, with burst = requests; the rest as the rule's first limit has it, or as
// the domain's defaults do. Its period is part of its buckets' identity, so that two units never share one, while a
// change of requests alone keeps what was used.
func (v *view) newOverride(k overrideKey) *limit {
	c := bucket.Config{Algorithm: k.domain.Defaults.Algorithm, Envoy: k.domain.Profile == rule.Envoy}
	l := &limit{
		Limit:  rule.Limit{Requests: k.requests, Unit: k.unit, Multiplier: k.multiplier, Policy: k.domain.Defaults.Policy},
		counts: &v.domains[k.domain.Name].metrics.override.static.limits[0],
	}
	if k.rule != nil && len(k.rule.Limits) > 0 {
		base := k.rule.Limits[0]
		c = base.Bucket.Config()
		l.Name, l.Policy, l.counts = base.Name, base.Policy, v.counts[base.ID]
	}
	c.Hits, c.Unit, c.Multiplier, c.Burst = int64(k.requests), k.unit, int64(k.multiplier), 0
	var err error
	if l.Bucket, err = bucket.New(c); err != nil {
		return nil // counted by the caller, and the configured rule applies
	}
	if k.rule != nil {
		l.Identity = k.rule.OverrideIdentity(c.Algorithm, k.unit, k.multiplier)
	} else {
		// A rule's identity begins with a number, and these with a letter. The entries, keys too, are the values.
		l.Identity = fmt.Sprintf("override %d:%s %s %d %s",
			len(k.domain.Name), k.domain.Name, c.Algorithm.Family(), k.multiplier, k.unit)
	}
	return l
}
