package xds

import (
	"fmt"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// Short names of the protos, as tests write them.
type (
	conf   = ratelimitv3.RateLimitConfig
	desc   = ratelimitv3.RateLimitDescriptor
	limits = ratelimitv3.RateLimitPolicy
)

const (
	unknown = ratelimitv3.RateLimitUnit_UNKNOWN
	second  = ratelimitv3.RateLimitUnit_SECOND
	minute  = ratelimitv3.RateLimitUnit_MINUTE
	hour    = ratelimitv3.RateLimitUnit_HOUR
	week    = ratelimitv3.RateLimitUnit_WEEK
)

// one is a config of one descriptor.
func one(d *desc) *conf { return &conf{Name: "d1", Domain: "d1", Descriptors: []*desc{d}} }

// pack puts configs into a response's resources.
func pack(tb testing.TB, configs ...*conf) []*anypb.Any {
	tb.Helper()
	out := make([]*anypb.Any, len(configs))
	for i, c := range configs {
		var err error
		if out[i], err = anypb.New(c); err != nil {
			tb.Fatal(err)
		}
	}
	return out
}

// A resource is the rules of the file that says the same.
func TestResourceIsAFile(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		resource *conf
		file     string
	}{
		{"every field", &conf{Name: "gw/http", Domain: "gw/http", Descriptors: []*desc{
			{
				Key: "httproute/ns/name/rule/0/match/0/*", Value: "httproute/ns/name/rule/0/match/0/*", ShadowMode: true,
				Descriptors: []*desc{
					{Key: "rule-0-match--1", Value: "rule-0-match--1", RateLimit: &limits{Unit: week, RequestsPerUnit: 7}, ShadowMode: true},
					{Key: "remote_address", RateLimit: &limits{Unit: hour, RequestsPerUnit: 0}, DetailedMetric: true},
				},
			},
			{Key: "model", RateLimit: &limits{Unit: minute, RequestsPerUnit: 4294967295, Name: "tokens",
				Replaces: []*ratelimitv3.RateLimitReplace{{Name: "other"}}}, QuotaMode: true,
				Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
					"plan": structpb.NewStringValue("gold"), "size": structpb.NewNumberValue(1.5), "list": structpb.NewListValue(&structpb.ListValue{}),
				}}},
			{Key: "health", RateLimit: &limits{Unlimited: true, Name: "other"}},
			{Key: "free", Value: "true"},
		}}, `
domain: gw/http
descriptors:
  - key: httproute/ns/name/rule/0/match/0/*
    value: httproute/ns/name/rule/0/match/0/*
    shadow_mode: true
    descriptors:
      - {key: rule-0-match--1, value: rule-0-match--1, rate_limit: {unit: week, requests_per_unit: 7}, shadow_mode: true}
      - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 0}, detailed_metric: true}
  - {key: model, rate_limit: {unit: minute, requests_per_unit: 4294967295, name: tokens, replaces: [{name: other}]}, quota_mode: true,
     metadata: {plan: gold, size: 1.5, list: []}}
  - {key: health, rate_limit: {unlimited: true, name: other}}
  - {key: free, value: "true"}
`},
		{"no descriptors", &conf{Name: "d", Domain: "d"}, "domain: d"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			files, err := ruleFiles(pack(t, test.resource))
			if err != nil {
				t.Fatal(err)
			}
			got := describe(t, files[0])
			want := describe(t, rule.File{Name: test.resource.Name, Data: []byte(test.file)})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the resource's rules are not the file's (-file +resource):\n%s\n%s", diff, files[0].Data)
			}
		})
	}
}

// describe tells everything of a file's rules but their places.
func describe(tb testing.TB, f rule.File) []string {
	tb.Helper()
	s, _, err := rule.Load([]rule.File{f}, rule.Options{DefaultProfile: rule.Envoy})
	if err != nil {
		tb.Fatalf("%v\n%s", err, f.Data)
	}
	var out []string
	for _, d := range s.Domains() {
		out = append(out, "domain "+d.Name)
		for _, r := range d.Rules() {
			line := fmt.Sprintf("%s unlimited=%t shadow=%t quota=%t replaces=%q name=%q metadata=%v detailed=%t",
				r.Path, r.Unlimited, r.Shadow, r.Quota, r.Replaces, r.Name, r.Metadata, r.Detailed)
			for _, l := range r.Limits {
				line += fmt.Sprintf(" %s %d/%s", l.Name, l.Requests, l.Unit)
			}
			out = append(out, line)
		}
	}
	return out
}

// A mistake is told as one in a file of the resource's name; its line is that of the resource as a file.
func TestMistakesInResources(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		resources []*conf
		want      string
	}{
		{"no unit", []*conf{one(&desc{Key: "k", RateLimit: &limits{RequestsPerUnit: 1}})},
			"d1:7:13: descriptors[0].rate_limit.unit: invalid rate limit unit 'UNKNOWN'; want second, minute, hour, day, week, month or year"},
		{"unit of a later version", []*conf{one(&desc{Key: "k", RateLimit: &limits{Unit: 8, RequestsPerUnit: 1}})},
			"d1:7:13: descriptors[0].rate_limit.unit: invalid rate limit unit '8'"},
		{"unit of an unlimited rule", []*conf{one(&desc{Key: "k", RateLimit: &limits{Unit: second, Unlimited: true}})},
			"should not specify rate limit unit when unlimited"},
		{"no key", []*conf{one(&desc{Value: "v"})}, "descriptor has empty key"},
		{"no domain", []*conf{{Name: "d1"}}, "d1:2:12: domain: config file cannot have empty domain"},
		{"one domain twice", []*conf{one(&desc{Key: "a"}), {Name: "d2", Domain: "d1"}},
			"d2:2:12: domain: duplicate domain 'd1' in config file; first at d1:2:12"},
		{"replaces itself", []*conf{one(&desc{Key: "k", RateLimit: &limits{Unit: second, RequestsPerUnit: 1, Name: "n",
			Replaces: []*ratelimitv3.RateLimitReplace{{Name: "n"}}}})}, "replaces should not contain name of same descriptor"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			files, err := ruleFiles(pack(t, test.resources...))
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = rule.Load(files, rule.Options{DefaultProfile: rule.Envoy})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q\n%s", err, test.want, files[0].Data)
			}
		})
	}
}

// What is no resource of ours is refused as a whole; what a later version adds to one is passed over.
func TestForeignResources(t *testing.T) {
	t.Parallel()
	good := pack(t, one(&desc{Key: "k", RateLimit: &limits{Unit: second, RequestsPerUnit: 1}}))
	other, err := anypb.New(&structpb.Struct{})
	if err != nil {
		t.Fatal(err)
	}
	for want, resources := range map[string][]*anypb.Any{
		`resource 1: type "type.googleapis.com/google.protobuf.Struct": want "` + typeURL + `"`: {good[0], other},
		"resource 0: proto: ": {{TypeUrl: typeURL, Value: []byte{0xff}}},
	} {
		if _, err := ruleFiles(resources); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "\u00a0", " "), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}

	newer := pack(t, one(&desc{Key: "k", RateLimit: &limits{Unit: second, RequestsPerUnit: 1}}))[0]
	newer.Value = protowire.AppendTag(newer.Value, 99, protowire.BytesType)
	newer.Value = protowire.AppendString(newer.Value, "new")
	files, err := ruleFiles([]*anypb.Any{newer})
	if err != nil {
		t.Fatal(err)
	}
	want, err := ruleFiles(good)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("an unknown field changed the rules (-want +got):\n%s", diff)
	}
}

// Whatever text a resource has, the rule that it becomes is found by that text.
func TestTextsSurvive(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.StringN(1, 20, -1), rapid.SampledFrom([]string{
		"~", "null", "y", "010", "1e3", "a: b", "- a", "#", "'", "\"", "\\", "\x00", "\x7f", "\u0085", "\u009f", "\u2028", "\ufeff", "\ufffe", "\U0001f600", "<&>", "\t\n\r",
	}))
	rapid.Check(t, func(t *rapid.T) {
		domain, key, value := text.Draw(t, "domain"), text.Draw(t, "key"), text.Draw(t, "value")
		if strings.Contains(key+value, "*") {
			t.Skip("a pattern")
		}
		files, err := ruleFiles([]*anypb.Any{packed(t, &conf{Name: "r", Domain: domain, Descriptors: []*desc{
			{Key: key, Value: value, RateLimit: &limits{Unit: second, RequestsPerUnit: 1}},
		}})})
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := rule.Load(files, rule.Options{DefaultProfile: rule.Envoy})
		if err != nil {
			t.Fatalf("%v\n%s", err, files[0].Data)
		}
		if d := s.Domain(domain); d == nil || d.Match([]rule.Entry{{Key: key, Value: value}}) == nil {
			t.Fatalf("domain %q, key %q, value %q is not found\n%s", domain, key, value, files[0].Data)
		}
	})
}

func packed(t *rapid.T, c *conf) *anypb.Any {
	a, err := anypb.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
