package rule

import (
	"errors"
	"slices"
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
func (d *domainSpec) validate(p *problems, values *valuesFiles) {
	v := &validator{p, d.profile}
	for _, b := range d.blocklist {
		v.block(b)
	}
	v.lookups(d.lookups, values)
	if s := d.defaults; s != nil {
		v.fraction(s.at, &s.LocalFraction)
	}
	v.level(d.name, d.descriptors, nil)
}

// siblingID tells siblings apart: by key and value, or, in profile envoy, by the two joined.
type siblingID struct {
	key, value string
	hasValue   bool
	match      string
}

func (v *validator) id(s *descriptorSpec) siblingID {
	id := siblingID{key: s.Key.s, value: s.Value.s, hasValue: s.Value.s != ""}
	if v.profile == Envoy {
		id = siblingID{key: s.name()}
	}
	if s.match != nil {
		id.match = s.match.identity
	}
	return id
}

// name is a node's name in a path: key or key_value.
func (s *descriptorSpec) name() string { return nodeName(s.Key.s, s.Value.s, s.match) }

// isPattern reports whether there is a * in the descriptor's key or value.
func (s *descriptorSpec) isPattern() bool { return strings.Contains(s.Key.s+s.Value.s, "*") }

// level checks the descriptors below a path, which is given as a text and by its keys.
func (v *validator) level(parent string, ds []*descriptorSpec, keys []string) {
	seen := make(map[siblingID]*descriptorSpec, len(ds))
	claims := claims{v: v}
	for _, s := range ds {
		v.values(s)
		if s.Key.s == "" {
			if !s.Key.bad {
				v.wrong(s.at.field("key", s.Key.at), "descriptor has empty key")
			}
			continue
		}
		if len(parent)+1+len(s.name()) > maxPathBytes {
			v.invalid(s.at, "path of %d bytes: want at most %d", len(parent)+1+len(s.name()), maxPathBytes)
			continue
		}
		if !s.Value.bad {
			id := v.id(s)
			if first := seen[id]; first != nil {
				v.invalid(s.at, "duplicate descriptor composite key '%s'; first at %s", cut(parent+"."+s.name(), 256), first.at.position())
			} else {
				seen[id] = s
				claims.add(s)
			}
		}
		v.descriptor(s)
		below := append(slices.Clip(keys), s.Key.s)
		if s.Partition.s != "" && (strings.Contains(s.Partition.s, "*") || !slices.Contains(below, s.Partition.s)) {
			v.invalid(s.at.field("partition", s.Partition.at), "'%s': want the key of this descriptor, or of one above it, without *", short(s.Partition.s))
		}
		if len(s.Descriptors) > 0 {
			v.level(parent+"."+s.name(), s.Descriptors, below)
		}
	}
}

func (v *validator) descriptor(s *descriptorSpec) {
	if s.ShareThreshold.on && !s.isPattern() && s.match == nil && !s.Value.bad {
		v.invalid(s.at.field("share_threshold", s.ShareThreshold.at),
			"share_threshold can only be used with wildcard values (containing '*'), but found key '%s'", cut(s.name(), 256))
	}
	if s.QuotaGroup.present() && !s.QuotaMode.on && !s.QuotaMode.bad {
		v.invalid(s.at.field("quota_group", s.QuotaGroup.at), "want quota_mode: true beside it")
	}
	if s.Normalize != nil && s.Value.s != "" && !strings.Contains(s.Value.s, "*") {
		v.invalid(s.Normalize.at, "has no meaning for one value: want a descriptor without value, or with a pattern")
	}
	if s.Normalize != nil && s.match != nil && s.match.kind == StepAnyOf {
		v.invalid(s.Normalize.at, "has no meaning for values compared whole: want cidr, or a descriptor without any_of")
	}
	if s.RateLimit != nil && s.Limits != nil {
		v.invalid(s.at.field("limits", mark{}), "want rate_limit or limits, not both")
	}
	if s.Limits != nil && (len(s.Limits) == 0 || len(s.Limits) > maxLimits) {
		v.wrong(s.at.field("limits", mark{}), "%d limits: want 1 to %d", len(s.Limits), maxLimits)
	}
	type period struct {
		unit       bucket.Unit
		multiplier uint32
		family     bucket.Family
	}
	names, periods := map[string]*limitSpec{}, map[period]*limitSpec{}
	for _, l := range s.limits() {
		v.limit(l, l != s.RateLimit)
		if l.Name.s != "" {
			if first := names[l.Name.s]; first != nil {
				v.invalid(l.at.field("name", l.Name.at), "two limits of one descriptor are named '%s', first at %s", short(l.Name.s), first.at.position())
				continue
			}
			names[l.Name.s] = l
			continue
		}
		id := period{l.Unit.unit, l.UnitMultiplier.n, l.Algorithm.a.Family()}
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
	for _, r := range l.Replaces {
		switch {
		case r.Name.bad:
		case r.Name.s == "":
			v.wrong(r.at, "should not have an empty replaces entry")
		case r.Name.s == l.Name.s:
			v.invalid(r.at.field("name", r.Name.at), "replaces should not contain name of same descriptor")
		}
	}
	switch {
	case l.Unlimited.bad:
		return // who knows which of the others it needs
	case l.Unlimited.on:
		v.unlimited(l, inList)
		return
	}
	if l.Unit.unit == bucket.NoUnit && !l.Unit.bad {
		v.wrong(l.at.field("unit", l.Unit.at), "invalid rate limit unit '%s'; want second, minute, hour, day, week, month or year", short(l.Unit.s))
	}
	if l.LocalFraction.present() {
		v.fraction(l.at, &l.LocalFraction)
	}
	if !l.RequestsPerUnit.present() {
		v.wrong(l.at.field("requests_per_unit", mark{}), "missing; write 0 to refuse everything")
	}
	v.make(l)
}

// fraction reports a local_fraction that has more digits than are kept.
func (v *validator) fraction(at place, f *fraction) {
	if _, exact := f.millionths(); !exact {
		v.invalid(at.field("local_fraction", f.at), "%s: want at most six decimals", short(f.s))
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
		{"local_fraction", l.LocalFraction.given}, {"scope", l.Scope.given},
	} {
		if f.present() && !f.bad {
			v.invalid(l.at.field(f.key, f.at), "has no meaning when unlimited")
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

// make makes the bucket's limit, or reports what stands against it. What is missing or was not understood is reported already: ones stand in for
// it here, so that the rest of the limit is checked as well.
func (v *validator) make(l *limitSpec) {
	if l.Algorithm.bad {
		return
	}
	c := bucket.Config{
		Algorithm:  l.Algorithm.a,
		Hits:       1,
		Unit:       l.Unit.unit,
		Multiplier: int64(l.UnitMultiplier.n),
		Burst:      int64(l.Burst.n),
		Debt:       int64(l.Debt.n),
		MaxDelay:   l.MaxDelay.d,
		Envoy:      v.profile == Envoy,
	}
	if l.RequestsPerUnit.present() && !l.RequestsPerUnit.bad {
		c.Hits = int64(l.RequestsPerUnit.n)
	}
	if l.MaxDelay.present() && !l.MaxDelay.bad && l.MaxDelay.d == 0 {
		v.invalid(l.at.field("max_delay", l.MaxDelay.at), "%s: want more than 0, or no max_delay", short(l.MaxDelay.s))
	}
	if l.Calendar.present() && !l.Calendar.bad {
		var err error
		if c.Calendar, err = zone(l.Calendar.s); err != nil {
			v.invalid(l.at.field("calendar", l.Calendar.at), "\"%s\": want the IANA name of a time zone, such as UTC or Europe/Berlin", short(l.Calendar.s))
		}
	}
	if c.Unit == bucket.NoUnit {
		c.Unit, c.Multiplier = bucket.Year, 1 // fits every calendar
	}
	if c.Algorithm == bucket.SlidingLog && c.Hits+c.Debt > bucket.MaxLogHits {
		v.invalid(l.at.field("requests_per_unit", l.RequestsPerUnit.at),
			"a sliding_log of %d: want at most %d with its debt, since it remembers every hit; sliding_window is close and remembers two numbers",
			c.Hits+c.Debt, bucket.MaxLogHits)
		c.Hits, c.Debt = 1, 0
	}
	b, err := bucket.New(c)
	for _, e := range fieldErrors(err) {
		if e.Field == "max_delay" {
			e.Value = short(l.MaxDelay.s)
		}
		v.invalid(l.fieldOf(e.Field), "%s: %s", e.Value, e.Want)
	}
	l.bucket = b
}

// fieldErrors takes bucket.New's error apart.
func fieldErrors(err error) []*bucket.FieldError {
	if err == nil {
		return nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var out []*bucket.FieldError
		for _, e := range all.Unwrap() {
			out = append(out, fieldErrors(e)...)
		}
		return out
	}
	one, ok := errors.AsType[*bucket.FieldError](err)
	if !ok {
		one = &bucket.FieldError{Field: "limit", Value: "limit", Want: err.Error()}
	}
	return []*bucket.FieldError{one}
}

// fieldOf returns the place of the key that bucket.New calls field.
func (l *limitSpec) fieldOf(field string) place {
	switch field {
	case "algorithm":
		return l.at.field("algorithm", l.Algorithm.at)
	case "hits":
		return l.at.field("requests_per_unit", l.RequestsPerUnit.at)
	case "multiplier", "period":
		if l.UnitMultiplier.present() {
			return l.at.field("unit_multiplier", l.UnitMultiplier.at)
		}
	case "burst":
		return l.at.field("burst", l.Burst.at)
	case "debt":
		return l.at.field("debt", l.Debt.at)
	case "max_delay":
		return l.at.field("max_delay", l.MaxDelay.at)
	case "calendar":
		return l.at.field("calendar", l.Calendar.at)
	}
	return l.at
}
