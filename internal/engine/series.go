package engine

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
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
	override *ruleMetrics
}

// domainCounters are those without a rule; they outlive views.
type domainCounters struct {
	unmatched       atomic.Uint64 // descriptors
	overrideInvalid atomic.Uint64 // descriptors
	tooMany         atomic.Uint64 // requests
	blocked         atomic.Uint64 // requests
	none            decisions     // that no limit decided
}

// newDomainMetrics continues old, if not nil.
func newDomainMetrics(name string, old *domainMetrics) *domainMetrics {
	m := &domainMetrics{name: name}
	if old != nil {
		m.domainCounters, m.override = old.domainCounters, old.override
		return m
	}
	m.domainCounters = new(domainCounters)
	m.override = newRuleMetrics(name, name+"."+overrideRule, []string{""})
	m.override.single = true
	return m
}

// rulesByPath finds counters of rules while a view is made: more than one a path where the dots of keys make two look alike.
type rulesByPath map[string][]*ruleMetrics

func (x rulesByPath) add(m *ruleMetrics) { x[m.path] = append(x[m.path], m) }

func (x rulesByPath) find(path string, limits []string) *ruleMetrics {
	for _, m := range x[path] {
		if slices.Equal(m.limits, limits) {
			return m
		}
	}
	return nil
}

// add returns the counters of r: those of another rule of this view or the one before if they have the same labels.
func (m *domainMetrics) add(r *rule.Rule, now, before rulesByPath) *ruleMetrics {
	labels := make([]string, len(r.Limits))
	for i, l := range r.Limits {
		labels[i] = limitLabel(l)
	}
	if n := len(m.rules); n > 0 && slices.Equal(m.rules[n-1].limits, labels) {
		labels = m.rules[n-1].limits // most rules of many have the same
	}
	if x := now.find(r.FullPath(), labels); x != nil {
		return x
	}
	x := before.find(r.FullPath(), labels)
	if x == nil {
		x = newRuleMetrics(m.name, r.FullPath(), labels)
	}
	m.rules = append(m.rules, x)
	now.add(x)
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
	static series
	single bool // never counted by values

	mu     sync.RWMutex
	values map[string]*series // by metric path, at most maxValues
	other  *series
}

func newRuleMetrics(domain, path string, limits []string) *ruleMetrics {
	m := &ruleMetrics{domain: domain, path: path, limits: limits}
	m.begin(&m.static, strings.TrimPrefix(path, domain+"."))
	return m
}

// at returns the series of a metric path.
func (m *ruleMetrics) at(path string) *series {
	if m.single || path == m.path {
		return &m.static
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
			m.other = m.newSeries(m.static.rule + otherValues)
		}
		return m.other
	}
	if m.values == nil {
		m.values = make(map[string]*series)
	}
	path = strings.Clone(path) // it may be part of a request
	label := strings.ToValidUTF8(strings.TrimPrefix(path, m.domain+"."), "\uFFFD")
	s = m.newSeries(label)
	m.values[path] = s
	return s
}

// series are the counters under one value of the label rule.
type series struct {
	rules  *ruleMetrics // it is one of
	rule   string
	limits []counts
	rare   atomic.Pointer[rare] // nil: nothing of it was ever counted
}

// counts are the counters of a limit that nearly every request adds to. They are kept together, small, since among many
// rules each cache line is waited for.
type counts struct {
	within atomic.Uint64 // hits
	passed atomic.Uint64 // decisions of its series of verdictOK and store.FromStore, which are not counted there
	of     *series
	limit  uint8 // its place among those of the series: a rule has far fewer limits, see rule
}

// rare are the counters of a series that most rules of many never need.
type rare struct {
	decisions decisions
	hits      []rareHits // a limit
}

// rareHits are the other counters of the hits of a limit.
type rareHits struct{ over, near, shadowOver atomic.Uint64 }

// decisions count requests by verdict and origin.
type decisions [verdictCount][originCount]atomic.Uint64

func (m *ruleMetrics) newSeries(rule string) *series {
	s := new(series)
	m.begin(s, rule)
	return s
}

// begin makes s, which is zero, one of the series of m.
func (m *ruleMetrics) begin(s *series, rule string) {
	s.rules, s.rule, s.limits = m, rule, make([]counts, len(m.limits))
	for i := range s.limits {
		s.limits[i].of, s.limits[i].limit = s, uint8(i)
	}
}

// rarely returns the rare counters, which it makes if need be.
func (s *series) rarely() *rare {
	if r := s.rare.Load(); r != nil {
		return r
	}
	s.rare.CompareAndSwap(nil, &rare{hits: make([]rareHits, len(s.limits))})
	return s.rare.Load()
}

// decide counts a decision of the limit.
func (c *counts) decide(verdict, origin int) {
	if verdict == verdictOK && origin == int(store.FromStore) {
		c.passed.Add(1)
		return
	}
	c.of.rarely().decisions[verdict][origin].Add(1)
}

// rarely returns the other counters of the limit.
func (c *counts) rarely() *rareHits { return &c.of.rarely().hits[c.limit] }

// total returns how often what the series counts was decided so.
func (s *series) total(verdict, origin int) uint64 {
	n := uint64(0)
	if r := s.rare.Load(); r != nil {
		n = r.decisions[verdict][origin].Load()
	}
	if verdict == verdictOK && origin == int(store.FromStore) {
		for i := range s.limits {
			n += s.limits[i].passed.Load()
		}
	}
	return n
}
