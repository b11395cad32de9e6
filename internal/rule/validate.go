package rule

import (
	"strings"
	"time"
	_ "time/tzdata" // calendars must not depend on the machine's own time zones

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// validator checks what one domain's files mean.
type validator struct {
	*problems
	profile Profile
}

// validate checks a domain and makes its limits. Where the reference service has a text for a mistake, the message begins with it.
func (d *domainSpec) validate(p *problems) {
	v := &validator{p, d.profile}
	v.level(d.name, d.descriptors)
}

// siblingID tells siblings apart: by key and value, or, in profile envoy, by the two joined.
type siblingID struct {
	key, value string
	hasValue   bool
}

func (v *validator) id(s *descriptorSpec) siblingID {
	if v.profile == Envoy {
		return siblingID{key: s.name()}
	}
	return siblingID{s.Key.s, s.Value.s, s.Value.s != ""}
}

// name is a node's name in a path: key or key_value.
func (s *descriptorSpec) name() string {
	if s.Value.s == "" {
		return s.Key.s
	}
	return s.Key.s + "_" + s.Value.s
}

func (v *validator) level(parent string, ds []*descriptorSpec) {
	seen := make(map[siblingID]*descriptorSpec, len(ds))
	for _, s := range ds {
		if s.Key.s == "" {
			if !s.Key.bad {
				v.wrong(s.at.field("key", s.Key.at), "descriptor has empty key")
			}
			continue
		}
		composite := parent + "." + s.name()
		if !s.Value.bad {
			id := v.id(s)
			if first := seen[id]; first != nil {
				v.invalid(s.at, "duplicate descriptor composite key '%s'; first at %s", composite, first.at.position())
			} else {
				seen[id] = s
			}
		}
		v.descriptor(s)
		v.level(composite, s.Descriptors)
	}
}

func (v *validator) descriptor(s *descriptorSpec) {
	if s.ShareThreshold.on && !strings.Contains(s.name(), "*") && !s.Value.bad {
		v.invalid(s.at.field("share_threshold", s.ShareThreshold.at),
			"share_threshold can only be used with wildcard values (containing '*'), but found key '%s'", s.name())
	}
	if s.QuotaGroup.present() && !s.QuotaMode.on && !s.QuotaMode.bad {
		v.invalid(s.at.field("quota_group", s.QuotaGroup.at), "want quota_mode: true beside it")
	}
	if s.Normalize != nil && s.Value.s != "" && !strings.Contains(s.Value.s, "*") {
		v.invalid(s.Normalize.at, "has no meaning for one value: want a descriptor without value, or with a pattern")
	}
	switch {
	case s.RateLimit != nil && s.Limits != nil:
		v.invalid(s.at.field("limits", mark{}), "want rate_limit or limits, not both")
	case s.Limits != nil && len(s.Limits) == 0:
		v.wrong(s.at.field("limits", mark{}), "want at least one limit")
	}
	type period struct {
		unit       bucket.Unit
		multiplier uint32
		family     string
	}
	names, periods := map[string]*limitSpec{}, map[period]*limitSpec{}
	for _, l := range s.limits() {
		v.limit(l, l != s.RateLimit)
		if l.Name.s != "" {
			if first := names[l.Name.s]; first != nil {
				v.invalid(l.at.field("name", l.Name.at), "two limits of one descriptor are named %q, first at %s", l.Name.s, first.at.position())
				continue
			}
			names[l.Name.s] = l
			continue
		}
		id := period{l.Unit.unit, l.UnitMultiplier.n, family(l.Algorithm.a)}
		if first := periods[id]; first != nil && l.Unit.unit != bucket.NoUnit {
			v.invalid(l.at, "two limits of one descriptor count alike over the same period, first at %s: want another unit, or names that tell them apart",
				first.at.position())
			continue
		}
		periods[id] = l
	}
}

// limit checks one limit, and makes it unless something is wrong with it.
func (v *validator) limit(l *limitSpec, inList bool) {
	before := len(v.errs)
	for _, r := range l.Replaces {
		switch {
		case r.Name.bad:
		case r.Name.s == "":
			v.wrong(r.at, "should not have an empty replaces entry")
		case r.Name.s == l.Name.s:
			v.invalid(r.at.field("name", r.Name.at), "replaces should not contain name of same descriptor")
		}
	}
	if l.Unlimited.on {
		v.unlimited(l, inList)
		return
	}
	if l.Unit.unit == bucket.NoUnit && !l.Unit.bad {
		v.wrong(l.at.field("unit", l.Unit.at), "invalid rate limit unit '%s'; want second, minute, hour, day, week, month or year", short(l.Unit.s))
	}
	if !l.RequestsPerUnit.present() {
		v.wrong(l.at.field("requests_per_unit", mark{}), "missing; write 0 to refuse everything")
	}
	v.options(l)
	if len(v.errs) == before && !l.spoilt() {
		v.make(l)
	}
}

// unlimited checks a limit that is none.
func (v *validator) unlimited(l *limitSpec, inList bool) {
	at := l.at.field("unlimited", l.Unlimited.at)
	if inList {
		v.wrong(at, "want a limit here; unlimited belongs in rate_limit")
	}
	switch {
	case l.Unit.unit != bucket.NoUnit:
		v.invalid(l.at.field("unit", l.Unit.at), "should not specify rate limit unit when unlimited")
	case l.Unit.s != "" && v.profile != Envoy:
		v.invalid(l.at.field("unit", l.Unit.at), "invalid rate limit unit '%s'; want none, when unlimited", short(l.Unit.s))
	}
	for _, f := range []struct {
		key string
		given
	}{
		{"algorithm", l.Algorithm.given}, {"unit_multiplier", l.UnitMultiplier.given}, {"burst", l.Burst.given}, {"debt", l.Debt.given},
		{"max_delay", l.MaxDelay.given}, {"calendar", l.Calendar.given}, {"refunds", l.Refunds.given}, {"on_backend_failure", l.OnBackendFailure.given},
	} {
		if f.present() && !f.bad {
			v.invalid(l.at.field(f.key, f.at), "has no meaning when unlimited")
		}
	}
}

// options checks what only some algorithms have.
func (v *validator) options(l *limitSpec) {
	name := algorithmNames[l.Algorithm.a]
	credit := family(l.Algorithm.a) == "credit"
	if l.Burst.present() && !credit {
		v.invalid(l.at.field("burst", l.Burst.at), "a %s has no burst; want token_bucket, gcra or leaky_bucket", name)
	}
	if l.MaxDelay.present() && !l.MaxDelay.bad {
		at := l.at.field("max_delay", l.MaxDelay.at)
		if l.Algorithm.a != bucket.LeakyBucket {
			v.invalid(at, "a %s has no queue; want leaky_bucket", name)
		}
		if l.MaxDelay.d == 0 {
			v.invalid(at, "0: want more than 0, or none")
		}
	}
	if l.Calendar.present() && !l.Calendar.bad {
		at := l.at.field("calendar", l.Calendar.at)
		if l.Algorithm.a != bucket.FixedWindow {
			v.invalid(at, "a %s has no calendar; want fixed_window", name)
		}
		if l.Unit.unit != bucket.NoUnit && (l.Unit.unit < bucket.Day || l.UnitMultiplier.n != 1) {
			v.invalid(at, "want unit day, week, month or year, without unit_multiplier")
		}
		if _, err := zone(l.Calendar.s); err != nil {
			v.invalid(at, "%q: want the IANA name of a time zone, such as UTC or Europe/Berlin", short(l.Calendar.s))
		}
	}
}

// zone loads a time zone by its IANA name. "Local" is none: it would depend on the machine.
func zone(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, errNoZone
	}
	return time.LoadLocation(name)
}

// spoilt reports whether the decoder found something wrong in the limit.
func (l *limitSpec) spoilt() bool {
	return l.Algorithm.bad || l.RequestsPerUnit.bad || l.Unit.bad || l.UnitMultiplier.bad || l.Unlimited.bad || l.Burst.bad || l.Debt.bad ||
		l.MaxDelay.bad || l.Calendar.bad
}

// make makes the bucket's limit.
func (v *validator) make(l *limitSpec) {
	c := bucket.Config{
		Algorithm:  l.Algorithm.a,
		Hits:       int64(l.RequestsPerUnit.n),
		Unit:       l.Unit.unit,
		Multiplier: int64(l.UnitMultiplier.n),
		Burst:      int64(l.Burst.n),
		Debt:       int64(l.Debt.n),
		MaxDelay:   l.MaxDelay.d,
		Envoy:      v.profile == Envoy,
	}
	if l.Calendar.present() {
		c.Calendar, _ = zone(l.Calendar.s)
	}
	b, err := bucket.New(c)
	if err != nil {
		v.invalid(l.at, "%v", err)
		return
	}
	l.bucket = b
}
