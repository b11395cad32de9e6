package engine

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

const (
	// overrideRule stands for all limits that requests brought along where no rule matched.
	overrideRule = "_override"
	// otherValues ends the label of a rule's values beyond the first maxValues.
	otherValues = "._other"
	// maxValues bounds the series of a rule that asks to be counted by its values (detailed_metric, value_to_metric).
	maxValues = 1000
	// maxLabel bounds the bytes of such a label.
	maxLabel = 256
)

// domainMetrics are the counters of one domain.
type domainMetrics struct {
	name string
	*domainCounters
	rules    []*ruleMetrics
	byPath   map[string][]*ruleMetrics // more than one where the dots of keys make two paths look alike
	override *ruleMetrics
	old      *domainMetrics // while a view is made: where counters are taken over from
}

// domainCounters are those without a rule; they outlive views.
type domainCounters struct {
	unmatched       atomic.Uint64 // descriptors
	overrideInvalid atomic.Uint64 // descriptors
	tooMany         atomic.Uint64 // requests
	blocked         atomic.Uint64 // requests
	none            *series       // decisions that no limit decided
}

// newDomainMetrics continues old, if not nil.
func newDomainMetrics(name string, old *domainMetrics) *domainMetrics {
	m := &domainMetrics{name: name, byPath: make(map[string][]*ruleMetrics), old: old}
	if old != nil {
		m.domainCounters, m.override = old.domainCounters, old.override
		return m
	}
	m.domainCounters = &domainCounters{none: newSeries("", 0)}
	m.override = newRuleMetrics(name, name+"."+overrideRule, []string{""})
	m.override.single = true
	return m
}

// add returns the counters of r, those of the view before if they have the same labels.
func (m *domainMetrics) add(r *rule.Rule) *ruleMetrics {
	path := m.name + "." + r.Path
	labels := make([]string, len(r.Limits))
	for i, l := range r.Limits {
		labels[i] = limitLabel(l)
	}
	alike := func(x *ruleMetrics) bool { return slices.Equal(x.limits, labels) }
	if i := slices.IndexFunc(m.byPath[path], alike); i >= 0 {
		return m.byPath[path][i]
	}
	var x *ruleMetrics
	if m.old != nil {
		if i := slices.IndexFunc(m.old.byPath[path], alike); i >= 0 {
			x = m.old.byPath[path][i]
		}
	}
	if x == nil {
		x = newRuleMetrics(m.name, path, labels)
	}
	m.rules = append(m.rules, x)
	m.byPath[path] = append(m.byPath[path], x)
	return x
}

// limitLabel names a limit among those of its rule: by its name, else by its period.
func limitLabel(l *rule.Limit) string {
	switch {
	case l.Name != "":
		return l.Name
	case l.Multiplier > 1:
		return strconv.FormatUint(uint64(l.Multiplier), 10) + " " + l.Unit.String()
	default:
		return l.Unit.String()
	}
}

// ruleMetrics are the counters of one rule: one series, or one a metric path where the rule asks for its values.
type ruleMetrics struct {
	domain string
	path   string // with the domain in front, as rule.Rule.MetricPath has it without values
	limits []string
	static *series
	single bool // never counted by values

	mu     sync.RWMutex
	values map[string]*series // by metric path, at most maxValues
	other  *series
}

func newRuleMetrics(domain, path string, limits []string) *ruleMetrics {
	return &ruleMetrics{
		domain: domain, path: path, limits: limits,
		static: newSeries(strings.TrimPrefix(path, domain+"."), len(limits)),
	}
}

// at returns the series of a metric path.
func (m *ruleMetrics) at(path string) *series {
	if m.single || path == m.path {
		return m.static
	}
	path = path[:min(len(path), maxLabel)]
	m.mu.RLock()
	s := m.values[path]
	full := s == nil && len(m.values) >= maxValues
	if full {
		s = m.other
	}
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.values[path]; s != nil {
		return s
	}
	if len(m.values) >= maxValues {
		if m.other == nil {
			m.other = newSeries(m.static.rule+otherValues, len(m.limits))
		}
		return m.other
	}
	if m.values == nil {
		m.values = make(map[string]*series)
	}
	path = strings.Clone(path) // it may be part of a request
	label := strings.ToValidUTF8(strings.TrimPrefix(path, m.domain+"."), "\uFFFD")
	s = newSeries(label, len(m.limits))
	m.values[path] = s
	return s
}

// series are the counters under one value of the label rule.
type series struct {
	rule      string
	decisions [verdictCount][originCount]atomic.Uint64
	hits      []hits // one a limit
}

// hits count the hits asked of one limit.
type hits struct{ within, over, near, shadowOver atomic.Uint64 }

func newSeries(rule string, limits int) *series {
	return &series{rule: rule, hits: make([]hits, limits)}
}
