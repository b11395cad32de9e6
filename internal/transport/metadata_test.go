package transport

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// metadataOf returns the dynamic metadata of the answer to req under v.
func metadataOf(t *testing.T, req engine.Request, v engine.Verdict) map[string]any {
	t.Helper()
	c := &call{req: req, verdict: v}
	m := unmarshalled(t, newAnswerer(Options{ResponseMetadata: true}).answer(c, noon))
	return m.DynamicMetadata.AsMap()
}

func TestMetadataOfTheDecision(t *testing.T) {
	t.Parallel()
	req := engine.Request{Domain: "shop", Descriptors: make([]engine.Descriptor, 2)}
	login := engine.Status{
		HasLimit: true, Name: "login", Rule: &rule.Rule{Path: "path_/login.remote_address"}, Unit: bucket.Minute, Remaining: 4,
	}
	over := login
	over.Over, over.Remaining = true, 0
	tests := map[string]struct {
		verdict engine.Verdict
		want    map[string]any
	}{
		"allowed": {engine.Verdict{Nearest: 1, Statuses: []engine.Status{{}, login}}, map[string]any{
			"domain": "shop", "over": false, "rule": "path_/login.remote_address", "limit": "login", "remaining": 4.0, "origin": "store",
		}},
		"denied": {engine.Verdict{Over: true, Statuses: []engine.Status{over, {}}}, map[string]any{
			"domain": "shop", "over": true, "rule": "path_/login.remote_address", "limit": "login", "remaining": 0.0, "origin": "store",
		}},
		"denied but for --shadow": {engine.Verdict{WouldDeny: true, Statuses: []engine.Status{over, {}}}, map[string]any{
			"domain": "shop", "over": false, "would_deny": true,
			"rule": "path_/login.remote_address", "limit": "login", "remaining": 0.0, "origin": "store",
		}},
		"no limit": {engine.Verdict{Nearest: -1, Statuses: make([]engine.Status, 2)}, map[string]any{
			"domain": "shop", "over": false,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, metadataOf(t, req, tt.verdict)); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMetadataOrigins(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status engine.Status
		want   string
	}{
		{engine.Status{Origin: store.FromStore}, "store"},
		{engine.Status{Origin: store.FromLease}, "lease"},
		{engine.Status{Origin: store.FromLocal}, "local"},
		{engine.Status{Origin: store.FromDeniedCache}, "denied_cache"},
		{engine.Status{Origin: store.Unavailable}, "unavailable"},
		{engine.Status{Origin: store.FromStore, Unpaid: true}, "unavailable"},
	}
	for _, tt := range tests {
		tt.status.HasLimit = true
		got := metadataOf(t, engine.Request{Domain: "d"}, engine.Verdict{Statuses: []engine.Status{tt.status}})
		if got["origin"] != tt.want {
			t.Errorf("origin %d, unpaid %t: got %q, want %q", tt.status.Origin, tt.status.Unpaid, got["origin"], tt.want)
		}
	}
}

// TestMetadataOfTheReference holds the shape that the reference service gives to dynamic metadata.
func TestMetadataOfTheReference(t *testing.T) {
	t.Parallel()
	e := func(k, v string) rule.Entry { return rule.Entry{Key: k, Value: v} }
	tests := map[string]struct {
		req  engine.Request
		want map[string]any
	}{
		"every field": {
			engine.Request{Domain: "shop", Hits: 3, Descriptors: []engine.Descriptor{
				{
					Entries: []rule.Entry{e("tenant", "t1"), e("user", "a=b")},
					HasHits: true, Hits: math.MaxUint64,
					HasOverride: true, Override: engine.Override{Requests: 42, Unit: 3, HasMultiplier: true, Multiplier: 2},
				},
				{},
			}},
			map[string]any{"domain": "shop", "hitsAddend": 3.0, "descriptors": []any{
				map[string]any{
					"entries":    []any{"tenant=t1", "user=a=b"},
					"limit":      "requests_per_unit:42 unit:HOUR unit_multiplier:{value:2}",
					"hitsAddend": float64(math.MaxUint64),
				},
				map[string]any{"entries": []any{}},
			}},
		},
		"zero hits are told where they were sent": {
			engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{{Entries: []rule.Entry{e("k", "")}, HasHits: true}}},
			map[string]any{"domain": "shop", "descriptors": []any{map[string]any{"entries": []any{"k="}, "hitsAddend": 0.0}}},
		},
		"odd overrides": {
			engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{
				{HasOverride: true}, {HasOverride: true, Override: engine.Override{Unit: 99}},
			}},
			map[string]any{"domain": "shop", "descriptors": []any{
				map[string]any{"entries": []any{}, "limit": ""}, map[string]any{"entries": []any{}, "limit": "unit:99"},
			}},
		},
		"bytes that are no text": {
			engine.Request{Domain: "d\xff", Descriptors: []engine.Descriptor{{Entries: []rule.Entry{e("\xfe", "\x80")}}}},
			map[string]any{"domain": "d\uFFFD", "descriptors": []any{map[string]any{"entries": []any{"\uFFFD=\uFFFD"}}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := engine.Verdict{Envoy: true, Nearest: -1, Statuses: make([]engine.Status, len(tt.req.Descriptors))}
			if diff := cmp.Diff(tt.want, metadataOf(t, tt.req, v)); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMetadataOfRules(t *testing.T) {
	t.Parallel()
	a := map[string]any{"team": "a", "deep": map[string]any{"x": 1, "list": []any{1, "two", true, nil, 2.5}}, "kind": map[string]any{"k": "v"}}
	b := map[string]any{"team": "b", "deep": map[string]any{"x": 2, "y": uint64(3)}, "kind": "text", "more": int64(4)}
	status := func(over bool, m map[string]any) engine.Status {
		return engine.Status{Over: over, Rule: &rule.Rule{Metadata: m}}
	}
	both := map[string]any{
		"team": "a", "deep": map[string]any{"x": 1.0, "y": 3.0, "list": []any{1.0, "two", true, nil, 2.5}},
		"kind": map[string]any{"k": "v"}, "more": 4.0,
	}
	tests := map[string]struct {
		statuses []engine.Status
		want     any
	}{
		"two that passed": {[]engine.Status{status(false, a), {}, status(false, b)}, both},
		"one refused":     {[]engine.Status{status(true, a), status(false, b)}, map[string]any{"team": "b", "deep": map[string]any{"x": 2.0, "y": 3.0}, "kind": "text", "more": 4.0}},
		"all refused":     {[]engine.Status{status(true, a), status(true, b)}, nil},
		"none has any":    {[]engine.Status{status(false, nil), {}}, nil},
	}
	for name, tt := range tests {
		for _, envoy := range []bool{false, true} {
			got := metadataOf(t, engine.Request{Domain: "d"}, engine.Verdict{Envoy: envoy, Nearest: -1, Statuses: tt.statuses})
			if diff := cmp.Diff(tt.want, got["metadata"]); diff != "" {
				t.Errorf("%s, envoy %t: metadata (-want +got):\n%s", name, envoy, diff)
			}
		}
	}
	// A rule's metadata is shared by all requests: merging must not have written into it.
	want := map[string]any{"team": "a", "deep": map[string]any{"x": 1, "list": []any{1, "two", true, nil, 2.5}}, "kind": map[string]any{"k": "v"}}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("the rule's own metadata changed (-want +got):\n%s", diff)
	}
}

func TestMetadataOffByDefault(t *testing.T) {
	t.Parallel()
	c := &call{req: engine.Request{Domain: "d"}, verdict: engine.Verdict{Nearest: -1}}
	if m := unmarshalled(t, newAnswerer(Options{}).answer(c, noon)); m.DynamicMetadata != nil {
		t.Errorf("got %v, want none", m.DynamicMetadata)
	}
}
