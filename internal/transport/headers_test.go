package transport

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// answered returns the answer to a request of one entry under v.
func answerOf(t testing.TB, o Options, v engine.Verdict) (headers map[string]string, body string) {
	t.Helper()
	c := new(call)
	c.req = engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{{Entries: []rule.Entry{{Key: "user", Value: "u1"}}}}}
	c.verdict = v
	m := unmarshalled(t, newAnswerer(o).answer(c, noon))
	return headerMap(t, m.ResponseHeadersToAdd), string(m.RawBody)
}

func headerMap(t testing.TB, hs []*corev3.HeaderValue) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, h := range hs {
		if _, ok := out[h.Key]; ok {
			t.Errorf("header %q is sent twice", h.Key)
		}
		out[h.Key] = h.Value
	}
	return out
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	within := engine.Status{
		HasLimit: true, Name: "login", Path: "path_/login", Requests: 5, Unit: bucket.Minute, Multiplier: 2,
		Quota: 10, Window: 120 * time.Second, Remaining: 3, Reset: 1500 * time.Millisecond,
	}
	with := func(change func(*engine.Status)) engine.Status {
		s := within
		change(&s)
		return s
	}
	over := with(func(s *engine.Status) {
		s.Over, s.Remaining, s.Reset, s.RetryAfter = true, 0, 500*time.Millisecond, 500*time.Millisecond
	})
	allow := func(s engine.Status) engine.Verdict { return engine.Verdict{Statuses: []engine.Status{s}} }
	deny := func(s engine.Status) engine.Verdict { return engine.Verdict{Over: true, Statuses: []engine.Status{s}} }
	ietf, all := Headers{IETF: true}, Headers{IETF: true, Legacy: LegacyEnvoy, Reference: true}
	tests := map[string]struct {
		headers Headers
		verdict engine.Verdict
		want    map[string]string
	}{
		"within": {ietf, allow(within), map[string]string{
			"RateLimit-Policy": `"login";q=10;w=120`, "RateLimit": `"login";r=3;t=2`,
		}},
		"unnamed": {ietf, allow(with(func(s *engine.Status) { s.Name = "" })), map[string]string{
			"RateLimit-Policy": `"path_/login";q=10;w=120`, "RateLimit": `"path_/login";r=3;t=2`,
		}},
		"a path of a request's values": {ietf, allow(with(func(s *engine.Status) {
			s.Name, s.Path, s.Rule = "", "shop.user_u1", &rule.Rule{Path: "user"}
		})), map[string]string{
			"RateLimit-Policy": `"user";q=10;w=120`, "RateLimit": `"user";r=3;t=2`,
		}},
		"no name at all": {ietf, allow(with(func(s *engine.Status) { s.Name, s.Path = "", "" })), map[string]string{
			"RateLimit-Policy": `"default";q=10;w=120`, "RateLimit": `"default";r=3;t=2`,
		}},
		"a name of quotes and lines": {ietf, allow(with(func(s *engine.Status) { s.Name = "a\"b\\c\r\nd: é" })), map[string]string{
			"RateLimit-Policy": `"a\"b\\c__d: __";q=10;w=120`, "RateLimit": `"a\"b\\c__d: __";r=3;t=2`,
		}},
		"a window of less than a second": {ietf, allow(with(func(s *engine.Status) { s.Window = 999 * time.Millisecond })), map[string]string{
			"RateLimit-Policy": `"login";q=10`, "RateLimit": `"login";r=3;t=2`,
		}},
		"a window of broken seconds": {ietf, allow(with(func(s *engine.Status) { s.Window = 1001 * time.Millisecond })), map[string]string{
			"RateLimit-Policy": `"login";q=10;w=2`, "RateLimit": `"login";r=3;t=2`,
		}},
		"full": {ietf, allow(with(func(s *engine.Status) { s.Remaining, s.Reset = 10, 0 })), map[string]string{
			"RateLimit-Policy": `"login";q=10;w=120`, "RateLimit": `"login";r=10`,
		}},
		"over": {ietf, deny(over), map[string]string{
			"RateLimit-Policy": `"login";q=10;w=120`, "RateLimit": `"login";r=0;t=1`, "Retry-After": "1",
		}},
		"never passes": {ietf, deny(with(func(s *engine.Status) {
			s.Over, s.Remaining, s.Quota, s.RetryAfter, s.Reset = true, 0, 0, bucket.Never, bucket.Never
		})), map[string]string{
			"RateLimit-Policy": `"login";q=0;w=120`, "RateLimit": `"login";r=0`,
		}},
		"over in --shadow": {ietf, engine.Verdict{WouldDeny: true, Statuses: []engine.Status{over}}, map[string]string{
			"RateLimit-Policy": `"login";q=10;w=120`, "RateLimit": `"login";r=0;t=1`,
		}},
		"no store to ask": {ietf, deny(with(func(s *engine.Status) { s.Over, s.Unpaid, s.Remaining = true, true, 0 })), map[string]string{
			"RateLimit-Policy": `"login";q=10;w=120`, "RateLimit": `"login";r=0`, "Retry-After": "5",
		}},
		"no limit":         {ietf, engine.Verdict{Nearest: -1, Statuses: []engine.Status{{}}}, map[string]string{}},
		"refused unasked":  {ietf, engine.Verdict{Over: true, Nearest: -1, Statuses: []engine.Status{{Over: true}}}, map[string]string{}},
		"headers off":      {Headers{}, allow(within), map[string]string{}},
		"only Retry-After": {Headers{}, deny(over), map[string]string{"Retry-After": "1"}},
		"the nearest only": {ietf, engine.Verdict{Nearest: 1, Statuses: []engine.Status{
			with(func(s *engine.Status) { s.Name, s.Shadow, s.Remaining = "shadow", true, 0 }), within,
		}}, map[string]string{
			"RateLimit-Policy": `"login";q=10;w=120`, "RateLimit": `"login";r=3;t=2`,
		}},
		"legacy envoy": {Headers{Legacy: LegacyEnvoy}, allow(within), map[string]string{
			"X-RateLimit-Limit": `5, 5;w=120;name="login"`, "X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "2",
		}},
		"legacy github": {Headers{Legacy: LegacyGitHub}, allow(within), map[string]string{
			"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "1795953602",
		}},
		"legacy with the draft": {all, allow(within), map[string]string{
			"RateLimit-Policy": `"login";q=10;w=120`, "RateLimit": `"login";r=3;t=2`,
			"X-RateLimit-Limit": `5, 5;w=120;name="login"`, "X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "2",
		}},
		"profile envoy": {all, engine.Verdict{Envoy: true, Over: true, Statuses: []engine.Status{over}}, map[string]string{
			"RateLimit-Limit": "5", "RateLimit-Remaining": "0", "RateLimit-Reset": "1",
		}},
		"profile envoy, other names": {
			Headers{Reference: true, LimitHeader: "X-L", RemainingHeader: "X-Left", ResetHeader: "X-R"},
			engine.Verdict{Envoy: true, Statuses: []engine.Status{within}},
			map[string]string{"X-L": "5", "X-Left": "3", "X-R": "2"},
		},
		"profile envoy, headers off": {
			Headers{IETF: true, Legacy: LegacyGitHub}, engine.Verdict{Envoy: true, Over: true, Statuses: []engine.Status{over}},
			map[string]string{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := answerOf(t, Options{Headers: tt.headers}.withDefaults(), tt.verdict)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHeadersOrder holds the reference's order, which its clients may rely on.
func TestHeadersOrder(t *testing.T) {
	t.Parallel()
	c := &call{verdict: engine.Verdict{Envoy: true, Statuses: []engine.Status{{HasLimit: true, Requests: 1}}}}
	o := Options{Headers: Headers{Reference: true}}.withDefaults()
	m := unmarshalled(t, newAnswerer(o).answer(c, noon))
	var got []string
	for _, h := range m.ResponseHeadersToAdd {
		got = append(got, h.Key)
	}
	if diff := cmp.Diff([]string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// TestHeadersOfAnyPolicyParse holds, for random policies with hostile names, that both fields parse as RFC 9651 lists that
// say what was meant, that no value could break out of its header, and that all headers together stay small.
func TestHeadersOfAnyPolicyParse(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	a := newAnswerer(Options{RetryJitter: true, Problem: true, Headers: Headers{IETF: true, Legacy: LegacyEnvoy}}.withDefaults())
	alphabets := []string{"abcz09._-/", "\"\\,;=:*", "\x00\r\n\t\x7f", "é世\xff\xc3", " ~!"}
	name := func() string {
		var b strings.Builder
		for range r.IntN(100) {
			set := alphabets[r.IntN(len(alphabets))]
			b.WriteByte(set[r.IntN(len(set))])
		}
		return b.String()
	}
	for range 100_000 {
		v := randomVerdict(r, name(), name())
		v.Envoy = false
		for i := range v.Statuses {
			v.Statuses[i].Remaining = r.Uint32()
			v.Statuses[i].Quota = r.Int64N(math.MaxUint32)
		}
		c := &call{verdict: *v}
		m := unmarshalled(t, a.answer(c, noon))
		size := 0
		for _, h := range m.ResponseHeadersToAdd {
			size += len(h.Key) + len(h.Value)
			if h.Value == "" || strings.Trim(h.Value, " ") != h.Value || printable(h.Value, len(h.Value)) != h.Value {
				t.Fatalf("%s: %q is not a header's value", h.Key, h.Value)
			}
		}
		if size > 1024 {
			t.Fatalf("headers of %d bytes, want at most 1024", size)
		}
		if len(m.RawBody) > maxProblem {
			t.Fatalf("body of %d bytes, want at most %d", len(m.RawBody), maxProblem)
		}
		if v.Nearest < 0 {
			if size > 0 && !v.Over {
				t.Fatalf("headers although no limit applies: %v", m.ResponseHeadersToAdd)
			}
			continue
		}
		s := &v.Statuses[v.Nearest]
		headers := headerMap(t, m.ResponseHeadersToAdd)
		checkField(t, headers["RateLimit-Policy"], s, "q", s.Quota)
		checkField(t, headers["RateLimit"], s, "r", int64(s.Remaining))
	}
}

// checkField holds that value is a list of one String, the policy's name, with an integer parameter.
func checkField(t *testing.T, value string, s *engine.Status, param string, want int64) {
	t.Helper()
	list, err := httpsfv.UnmarshalList([]string{value})
	if err != nil {
		t.Fatalf("%q: %v", value, err)
	}
	if len(list) != 1 {
		t.Fatalf("%q: got %d members, want 1", value, len(list))
	}
	item, ok := list[0].(httpsfv.Item)
	if !ok {
		t.Fatalf("%q: got %T, want an Item", value, list[0])
	}
	name := limitLabel(s)
	if name == "" {
		name = "default"
	}
	if name = printable(name, maxPolicyName); item.Value != name {
		t.Fatalf("%q: got name %q, want %q", value, item.Value, name)
	}
	if canonical, err := httpsfv.Marshal(list); err != nil || canonical != value {
		t.Fatalf("got %q, want it as a library writes it: %q, %v", value, canonical, err)
	}
	if got, _ := item.Params.Get(param); got != want {
		t.Fatalf("%q: got %s=%v, want %d", value, param, got, want)
	}
	for _, p := range []string{"w", "t"} {
		if got, ok := item.Params.Get(p); ok {
			if n, ok := got.(int64); !ok || n <= 0 {
				t.Fatalf("%q: got %s=%v, want a positive integer", value, p, got)
			}
		}
	}
}
