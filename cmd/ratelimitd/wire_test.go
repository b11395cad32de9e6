package main

import (
	"math"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	goproto "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// What is written by hand is what generated code reads.
func TestRequestIsEncoded(t *testing.T) {
	t.Parallel()
	entries := []rule.Entry{{Key: "tier", Value: "pro"}, {Key: "user", Value: ""}, {}}
	for name, req := range map[string]*engine.Request{
		"nothing": {},
		"plain":   {Domain: "shop", Hits: 3, Descriptors: []engine.Descriptor{{Entries: entries}, {}}},
		"hits": {Domain: "shop", Hits: math.MaxUint32, Descriptors: []engine.Descriptor{
			{Entries: entries, HasHits: true}, {HasHits: true, Hits: math.MaxUint64, Refund: true},
		}},
		"limits": {Domain: "shop", Descriptors: []engine.Descriptor{
			{HasOverride: true, Override: engine.Override{Requests: 10, Unit: 2}},
			{HasOverride: true, Override: engine.Override{Requests: 0, Unit: -1, HasMultiplier: true, Multiplier: 5}},
			{HasOverride: true, Override: engine.Override{HasMultiplier: true}},
		}},
	} {
		got := new(rlsv3.RateLimitRequest)
		if err := goproto.Unmarshal(appendRequest(nil, req), got); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(wireRequest(req), got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// bench, too, sends what is no UTF-8.
func TestBenchMessageOfAnyBytes(t *testing.T) {
	t.Parallel()
	req, err := shorthand.ParseRequest(`fw | [api="\xff\x00"]`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := benchMessage(req); err != nil {
		t.Errorf("got %v, want a message", err)
	}
}

// wireRequest is req as generated code has it.
func wireRequest(req *engine.Request) *rlsv3.RateLimitRequest {
	w := &rlsv3.RateLimitRequest{Domain: req.Domain, HitsAddend: req.Hits}
	for _, d := range req.Descriptors {
		wd := &ratelimitv3.RateLimitDescriptor{IsNegativeHits: d.Refund}
		for _, e := range d.Entries {
			wd.Entries = append(wd.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		if d.HasHits {
			wd.HitsAddend = wrapperspb.UInt64(d.Hits)
		}
		if d.HasOverride {
			wd.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: d.Override.Requests, Unit: typev3.RateLimitUnit(d.Override.Unit),
			}
			if d.Override.HasMultiplier {
				wd.Limit.UnitMultiplier = wrapperspb.UInt32(d.Override.Multiplier)
			}
		}
		w.Descriptors = append(w.Descriptors, wd)
	}
	return w
}
