package rule

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// applyDefaults writes what a domain's limits take where they say nothing themselves: first what the profile has, then the domain's own.
func (d *domainSpec) applyDefaults() {
	d.algorithm = bucket.TokenBucket
	if d.profile == Envoy {
		d.algorithm = bucket.FixedWindow
	}
	d.policy = bucket.Policy{OnFailure: bucket.FailOpen, Refunds: true, Rule: d.name}
	if s := d.defaults; s != nil {
		if s.Algorithm.present() {
			d.algorithm = s.Algorithm.a
		}
		if s.OnBackendFailure.present() {
			d.policy.OnFailure = s.OnBackendFailure.m
		}
		d.policy.LocalFraction, _ = s.LocalFraction.millionths()
		if s.Refunds.present() {
			d.policy.Refunds = s.Refunds.on
		}
	}
	d.limitsOf(d.descriptors, func(l *limitSpec) {
		if !l.Algorithm.present() {
			l.Algorithm.a = d.algorithm
			l.Algorithm.bad = d.defaults != nil && d.defaults.Algorithm.bad
		}
		if !l.OnBackendFailure.present() {
			l.OnBackendFailure.m = d.policy.OnFailure
		}
		if !l.LocalFraction.present() && d.defaults != nil {
			l.LocalFraction.s = d.defaults.LocalFraction.s
		}
		if !l.Refunds.present() {
			l.Refunds.on = d.policy.Refunds
		}
		if !l.UnitMultiplier.present() {
			l.UnitMultiplier.n = 1
		}
	})
}

// limitsOf calls f for every limit at and below the descriptors, in file order.
func (d *domainSpec) limitsOf(ds []*descriptorSpec, f func(*limitSpec)) {
	for _, s := range ds {
		for _, l := range s.limits() {
			f(l)
		}
		d.limitsOf(s.Descriptors, f)
	}
}

// limits are the limits of a node, in file order.
func (s *descriptorSpec) limits() []*limitSpec {
	if s.RateLimit != nil {
		return append([]*limitSpec{s.RateLimit}, s.Limits...)
	}
	return s.Limits
}
