package transport

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// policy is what headers say of a limit, whatever remains of it.
type policy struct {
	name   string // "login", quotes included: a String of RFC 9651
	policy string // "login";q=5;w=60
	legacy string // 5, 5;w=60;name="login"
}

// policyKey is what a policy is made of.
type policyKey struct {
	name       string
	quota      int64
	window     time.Duration
	requests   uint32
	unit       bucket.Unit
	multiplier uint32
}

// maxPolicies bounds the table of policies, some 300 bytes each: more than a large deployment has rules, since with fewer than
// those each request would make its policy anew; but requests may bring limits of their own.
const maxPolicies = 1 << 17

// policies remembers the policies of limits, which are the dear part of the headers and change only with the rules. Its
// zero value is empty and ready. Safe for concurrent use.
type policies struct {
	mu    sync.RWMutex
	known map[policyKey]policy
}

// of returns the policy of s's limit.
func (p *policies) of(s *engine.Status) policy {
	label := limitLabel(s)
	k := policyKey{label[:min(len(label), maxPolicyName)], s.Quota, s.Window, s.Requests, s.Unit, s.Multiplier}
	p.mu.RLock()
	known, ok := p.known[k]
	p.mu.RUnlock()
	if ok {
		return known
	}
	made := newPolicy(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxPolicies || p.known == nil {
		p.known = make(map[policyKey]policy)
	}
	k.name = strings.Clone(k.name) // it may be part of a request, which must not be kept alive
	p.known[k] = made
	return made
}

func newPolicy(k policyKey) policy {
	name := policyName(k.name)
	item := httpsfv.NewItem(name)
	quoted := marshal(httpsfv.List{item})
	item.Params.Add("q", max(k.quota, 0))
	if w := ceilSeconds(k.window); k.window >= time.Second { // the draft has no fractions of a second
		item.Params.Add("w", w)
	}
	requests := strconv.FormatUint(uint64(k.requests), 10)
	return policy{
		name:   quoted,
		policy: marshal(httpsfv.List{item}),
		legacy: requests + ", " + requests + ";w=" + strconv.FormatInt(int64(periodOf(k.unit, k.multiplier)/time.Second), 10) +
			";name=" + quoted,
	}
}

// marshal writes a list of ASCII strings and small integers, which cannot fail; were it to, the header would be left out.
func marshal(l httpsfv.List) string {
	s, err := httpsfv.Marshal(l)
	if err != nil {
		return ""
	}
	return s
}

// limitLabel names a limit to people: its own name, else where it is configured.
func limitLabel(s *engine.Status) string {
	if s.Name != "" {
		return s.Name
	}
	return rulePath(s)
}

// rulePath returns the configured path below the domain. It holds no value of a request unless the request brought its own
// limit and no rule matched.
func rulePath(s *engine.Status) string {
	if s.Rule != nil {
		return s.Rule.Path
	}
	return s.Path
}

// maxPolicyName bounds the bytes of a name in a header or a body.
const maxPolicyName = 64

// policyName makes a label fit for a header or a body: printable ASCII, at most maxPolicyName bytes, not empty.
func policyName(label string) string {
	if label == "" {
		return "default"
	}
	return printable(label, maxPolicyName)
}

// printable returns the first limit bytes of s, those that are not printable ASCII replaced.
func printable(s string, limit int) string {
	b := []byte(s[:min(len(s), limit)])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '_'
		}
	}
	return string(b)
}

// periodOf returns the length of a limit's period as rules write it.
func periodOf(u bucket.Unit, multiplier uint32) time.Duration {
	return u.Duration() * time.Duration(max(multiplier, 1))
}
