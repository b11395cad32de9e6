package rule

import (
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// The lints, by the Code of their Warning.
const (
	LintIgnoredKey       = "ignored-key"       // a key that the reference ignores where it stands
	LintNoEffect         = "no-effect"         // a setting that changes nothing here
	LintEmptyDomain      = "empty-domain"      // a domain without rules
	LintEmptyValue       = "empty-value"       // value: "", which means any value
	LintUnreachable      = "unreachable"       // a descriptor whose requests all go to a sibling
	LintHiddenChildren   = "hidden-children"   // a specific descriptor without the children of the general one
	LintDanglingReplaces = "dangling-replaces" // replaces a name that no limit of the domain has
	LintDuplicateName    = "duplicate-name"    // one name for limits of several descriptors
	LintSlowQueue        = "slow-queue"        // a queue that outlasts the proxy's patience
	LintShortQueue       = "short-queue"       // a queue in which not even one hit can wait its turn
	LintAddressAsText    = "address-as-text"   // a blocked address that another spelling gets past
	LintDanglingLookup   = "dangling-lookup"   // a lookup for a key that no descriptor has
)

// proxyTimeout is how long Envoy waits for an answer unless told otherwise (timeout of its rate limit filter).
const proxyTimeout = 20 * time.Millisecond

// linter looks for probable mistakes in the valid rules of a domain.
type linter struct {
	*problems
	domain   *domainSpec
	names    map[string]place // limits' names, where first given
	replaced map[string]bool  // names that some limit replaces
}

func (d *domainSpec) lint(p *problems) {
	l := &linter{p, d, map[string]place{}, map[string]bool{}}
	d.limitsOf(d.descriptors, func(limit *limitSpec) {
		for _, r := range limit.Replaces {
			l.replaced[r.Name.s] = true
		}
	})
	if len(d.descriptors) == 0 && len(d.blocklist) == 0 {
		l.warn(d.first.at.field("descriptors", mark{}), LintEmptyDomain, "add descriptors, or take the file out", "domain '%s' has no rules", short(d.name))
	}
	l.blocklist()
	l.lookups()
	l.level(d.descriptors)
	l.replaces(d.descriptors)
}

func (l *linter) level(ds []*descriptorSpec) {
	l.siblings(ds)
	for _, s := range ds {
		l.descriptor(s)
		for _, limit := range s.limits() {
			l.name(limit)
			l.queue(limit)
			l.failure(limit)
		}
		l.level(s.Descriptors)
	}
}

// siblings looks at how the descriptors of one level stand in each other's way.
func (l *linter) siblings(ds []*descriptorSpec) {
	if len(ds) < 2 {
		return
	}
	all := make([]child, len(ds))
	specs := make(map[*treeNode]*descriptorSpec, len(ds))
	bare := make(map[string]*descriptorSpec) // without a value, by key
	for i, s := range ds {
		all[i] = child{s, &treeNode{}, i}
		specs[all[i].node] = s
		if s.Value.s == "" && s.match == nil {
			bare[s.Key.s] = s
		}
	}
	siblings := newChildren(l.domain.profile, all)
	for _, s := range ds {
		if s.match != nil {
			l.matcher(s, siblings, specs, bare[s.Key.s])
			continue
		}
		// An entry that stands for all that s matches, its stars being text: what matches it matches all of them.
		sample := Entry{s.Key.s, s.Value.s}
		if s.Value.s == "" {
			sample.Value = "*"
		}
		wild := specs[siblings.wild(sample)]
		isWild := s.isPattern()
		switch {
		case wild != nil && wild != s && (isWild || s.Value.s == ""):
			l.warn(s.at, LintUnreachable, l.precedence(), "'%s' is never reached: '%s' at %s takes all its requests",
				short(s.name()), short(wild.name()), wild.at.position())
		case !isWild && s.Value.s != "" && wild != nil:
			l.hidden(s, wild)
		case s.Value.s != "":
			if general := bare[s.Key.s]; general != nil {
				l.hidden(s, general)
			}
		}
	}
}

// matcher looks at how the siblings of a descriptor with any_of, cidr or regex stand in its way, and it in theirs.
func (l *linter) matcher(s *descriptorSpec, siblings children, specs map[*treeNode]*descriptorSpec, general *descriptorSpec) {
	if s.match.kind == StepAnyOf {
		for _, value := range s.match.texts {
			if first := specs[siblings.next(Entry{s.Key.s, value})]; first != s {
				l.warn(s.at, LintUnreachable, "a value of its own wins over any_of: take it out of one of the two", "'%s' of '%s' is never reached: '%s' at %s takes its requests",
					short(value), short(s.name()), short(first.name()), first.at.position())
				break // enough to see what is meant
			}
		}
	}
	if general != nil {
		l.hidden(s, general)
	}
}

// precedence is the hint for a descriptor that loses to a pattern.
func (l *linter) precedence() string {
	if l.domain.profile == Envoy {
		return "a pattern wins over what stands below it and over a key alone: put the narrower one first, or remove one of the two"
	}
	return "a pattern wins over a key alone: remove one of the two"
}

// hidden warns if requests that s takes from a more general sibling would have gone on to that one's children.
func (l *linter) hidden(s, general *descriptorSpec) {
	if s.RateLimit != nil && s.RateLimit.Unlimited.on {
		return // meant to pass
	}
	own := make(map[string]bool, len(s.Descriptors))
	for _, c := range s.Descriptors {
		own[c.Key.s] = true
	}
	var missing []string
	for _, c := range general.Descriptors {
		if own[c.Key.s] {
			continue
		}
		if missing = append(missing, "'"+short(c.Key.s)+"'"); len(missing) == 3 {
			break // enough to see what is meant
		}
		own[c.Key.s] = true
	}
	if missing != nil {
		l.warn(s.at, LintHiddenChildren, "repeat them here if they should apply, since matching does not go back",
			"'%s' hides %s below '%s' at %s", short(s.name()), strings.Join(missing, ", "), short(general.name()), general.at.position())
	}
}

// descriptor warns of settings without an effect.
func (l *linter) descriptor(s *descriptorSpec) {
	if s.Value.present() && s.Value.s == "" {
		l.warn(s.at.field("value", s.Value.at), LintEmptyValue, "leave it out if that is meant", "an empty value means any value")
	}
	unlimited := s.RateLimit != nil && s.RateLimit.Unlimited.on
	if s.Partition.s != "" && (unlimited || len(s.limits()) == 0) {
		l.warn(s.at.field("partition", s.Partition.at), LintNoEffect, "set it where the limit is, since children do not inherit it", "partition has no effect on a descriptor without a limit")
	}
	if unlimited {
		limit := s.RateLimit
		if limit.RequestsPerUnit.present() {
			l.warn(limit.at.field("requests_per_unit", limit.RequestsPerUnit.at), LintNoEffect, "remove one of the two", "an unlimited descriptor has no limit")
		}
		if limit.Unit.s != "" {
			l.warn(limit.at.field("unit", limit.Unit.at), LintNoEffect, "remove one of the two", "an unlimited descriptor has no unit")
		}
	}
	if len(s.limits()) > 0 && !unlimited {
		return
	}
	for _, f := range []struct {
		key string
		toggle
	}{{"shadow_mode", s.ShadowMode}, {"quota_mode", s.QuotaMode}, {"detailed_metric", s.DetailedMetric}} {
		if f.on {
			l.warn(s.at.field(f.key, f.at), LintNoEffect, "set it where the limit is, since children do not inherit it",
				"%s has no effect on a descriptor without a limit", f.key)
		}
	}
}

// name warns of a name that two descriptors' limits have: replaces, and an operator's override by name, mean both. The reference's files
// have names for show, which only replaces makes ambiguous.
func (l *linter) name(limit *limitSpec) {
	if limit.Name.s == "" {
		return
	}
	at := limit.at.field("name", limit.Name.at)
	first, taken := l.names[limit.Name.s]
	if !taken {
		l.names[limit.Name.s] = at
		return
	}
	if l.domain.profile == Envoy && !l.replaced[limit.Name.s] {
		return
	}
	l.warn(at, LintDuplicateName, "give each its own name, unless both are meant wherever the name is used",
		"name '%s' is also that of another limit, at %s", short(limit.Name.s), first.position())
}

// queue warns of a queue that does not do what its writer hopes for.
func (l *linter) queue(limit *limitSpec) {
	if limit.bucket == nil || limit.MaxDelay.d == 0 {
		return
	}
	at := limit.at.field("max_delay", limit.MaxDelay.at)
	if limit.MaxDelay.d > proxyTimeout {
		l.warn(at, LintSlowQueue, "raise the timeout of the proxy's rate limit filter above max_delay",
			"an answer may be held for %v, longer than the %v that Envoy waits by default", limit.MaxDelay.d, proxyTimeout)
	}
	if n := time.Duration(limit.RequestsPerUnit.n); n > 0 && limit.bucket.Period()/n > limit.MaxDelay.d {
		l.warn(at, LintShortQueue, "raise max_delay, or leave it out", "hits are %v apart: one that comes more than %v early is refused, not held",
			limit.bucket.Period()/n, limit.MaxDelay.d)
	}
}

// failure warns of settings for an outage that this limit does not see.
func (l *linter) failure(limit *limitSpec) {
	if limit.Unlimited.on {
		return
	}
	fraction := limit.at.field("local_fraction", limit.LocalFraction.at)
	switch {
	case limit.Scope.node && limit.LocalFraction.present():
		l.warn(fraction, LintNoEffect, "remove one of the two", "a limit of scope node asks no store, and so misses none")
	case limit.LocalFraction.present() && limit.OnBackendFailure.m != bucket.LocalStrict:
		l.warn(fraction, LintNoEffect, "say on_backend_failure: local_strict, or remove it", "local_fraction has no effect on a limit that is %s", limit.OnBackendFailure.m)
	}
}

// replaces warns of names that no limit of the domain has. It runs once all names are known.
func (l *linter) replaces(ds []*descriptorSpec) {
	l.domain.limitsOf(ds, func(limit *limitSpec) {
		for _, r := range limit.Replaces {
			if _, ok := l.names[r.Name.s]; !ok {
				l.warn(r.at.field("name", r.Name.at), LintDanglingReplaces, "correct the name, or remove the entry",
					"no limit of domain '%s' is named '%s'", short(l.domain.name), short(r.Name.s))
			}
		}
	})
}
