package transport

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// fullRequest sets every field of a request.
func fullRequest() *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{
		Domain:     "shop",
		HitsAddend: math.MaxUint32,
		Descriptors: []*ratelimitv3.RateLimitDescriptor{
			{
				Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: "t1"}, {Key: "user", Value: "ü"}},
				Limit: &ratelimitv3.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 42, Unit: typev3.RateLimitUnit_DAY, UnitMultiplier: wrapperspb.UInt32(7),
				},
				HitsAddend:     wrapperspb.UInt64(math.MaxUint64),
				IsNegativeHits: true,
			},
			{},
			{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "k"}, {}}, HitsAddend: wrapperspb.UInt64(0)},
			{Limit: &ratelimitv3.RateLimitDescriptor_RateLimitOverride{UnitMultiplier: wrapperspb.UInt32(0)}},
		},
	}
}

// engineRequest is what a generated request should decode to: the obvious conversion, for comparison.
func engineRequest(m *rlsv3.RateLimitRequest) engine.Request {
	r := engine.Request{Domain: m.Domain, Hits: m.HitsAddend}
	for _, d := range m.Descriptors {
		var e engine.Descriptor
		for _, entry := range d.Entries {
			e.Entries = append(e.Entries, rule.Entry{Key: entry.Key, Value: entry.Value})
		}
		if l := d.Limit; l != nil {
			e.HasOverride = true
			e.Override = engine.Override{
				Requests: l.RequestsPerUnit, Unit: int32(l.Unit),
				Multiplier: l.UnitMultiplier.GetValue(), HasMultiplier: l.UnitMultiplier != nil,
			}
		}
		e.Hits, e.HasHits, e.Refund = d.HitsAddend.GetValue(), d.HitsAddend != nil, d.IsNegativeHits
		r.Descriptors = append(r.Descriptors, e)
	}
	return r
}

func decoded(t testing.TB, b []byte) (engine.Request, error) {
	t.Helper()
	c := new(call)
	err := c.decode(b)
	return c.req, err
}

func marshalled(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecodeEveryField(t *testing.T) {
	t.Parallel()
	m := fullRequest()
	got, err := decoded(t, marshalled(t, m))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(engineRequest(m), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

// wire builds messages by hand, to say what generated code never would.
type wire []byte

func (w wire) varint(num protowire.Number, v uint64) wire {
	return protowire.AppendVarint(protowire.AppendTag(w, num, protowire.VarintType), v)
}

func (w wire) bytes(num protowire.Number, v []byte) wire {
	return protowire.AppendBytes(protowire.AppendTag(w, num, protowire.BytesType), v)
}

func (w wire) text(num protowire.Number, s string) wire { return w.bytes(num, []byte(s)) }

func (w wire) fixed32(num protowire.Number) wire {
	return protowire.AppendFixed32(protowire.AppendTag(w, num, protowire.Fixed32Type), 7)
}

func (w wire) group(num protowire.Number, inner wire) wire {
	w = append(protowire.AppendTag(w, num, protowire.StartGroupType), inner...)
	return protowire.AppendTag(w, num, protowire.EndGroupType)
}

// oddMessages are messages that generated code accepts but does not write.
func oddMessages() map[string]wire {
	one := wire{}.varint(1, 1)
	return map[string]wire{
		"empty":                        {},
		"last scalar wins":             wire{}.text(1, "a").text(1, "b").varint(3, 1).varint(3, 2),
		"unknown fields":               wire{}.varint(9, 1).text(1000, "x").fixed32(12).group(13, wire{}.varint(1, 2).group(14, nil)).text(1, "d"),
		"wrong wire types":             wire{}.varint(1, 1).varint(2, 2).text(3, "x").fixed32(3).fixed32(2),
		"varint cut to 32 bits":        wire{}.varint(3, 1<<40|5),
		"empty descriptor":             wire{}.bytes(2, nil),
		"unknown in descriptor":        wire{}.bytes(2, wire{}.varint(1, 1).text(9, "x").text(4, "true").group(5, nil)),
		"bool of any number":           wire{}.bytes(2, wire{}.varint(4, 1<<63)),
		"bool last wins":               wire{}.bytes(2, wire{}.varint(4, 1).varint(4, 0)),
		"hits merged":                  wire{}.bytes(2, wire{}.bytes(3, wire{}.varint(1, 5)).bytes(3, nil)),
		"hits last wins":               wire{}.bytes(2, wire{}.bytes(3, wire{}.varint(1, 5)).bytes(3, wire{}.varint(1, 6))),
		"hits of odd content":          wire{}.bytes(2, wire{}.bytes(3, wire{}.text(1, "x").varint(2, 2))),
		"limit merged":                 wire{}.bytes(2, wire{}.bytes(2, wire{}.varint(1, 5)).bytes(2, wire{}.varint(2, 3)).bytes(2, wire{}.bytes(3, one))),
		"multiplier merged":            wire{}.bytes(2, wire{}.bytes(2, wire{}.bytes(3, one).bytes(3, nil))),
		"multiplier cut":               wire{}.bytes(2, wire{}.bytes(2, wire{}.bytes(3, wire{}.varint(1, 1<<32|3)))),
		"negative unit":                wire{}.bytes(2, wire{}.bytes(2, wire{}.varint(2, math.MaxUint64))),
		"unit beyond the enum":         wire{}.bytes(2, wire{}.bytes(2, wire{}.varint(2, 99))),
		"unit of more than 32 bits":    wire{}.bytes(2, wire{}.bytes(2, wire{}.varint(2, 1<<33|4))),
		"entry in parts":               wire{}.bytes(2, wire{}.bytes(1, wire{}.text(1, "k").text(2, "v").text(1, "l")).bytes(1, wire{}.varint(1, 1).text(3, "?"))),
		"entries after the hits":       wire{}.bytes(2, wire{}.bytes(3, one).bytes(1, wire{}.text(1, "k")).bytes(2, nil).bytes(1, wire{}.text(1, "l"))),
		"overlong varint":              append(wire{}.text(1, "d"), 3<<3, 0x85, 0x80, 0x80, 0x00),
		"overlong tag":                 append(wire{}.text(1, "d"), 0x98, 0x80, 0x00, 5),
		"descriptors between scalars":  wire{}.bytes(2, one).varint(3, 4).bytes(2, wire{}.varint(4, 1)).text(1, "d"),
		"fields at the highest number": wire{}.varint(protowire.MaxValidNumber, 1),
	}
}

// badMessages are no protobuf, so generated code refuses them too.
func badMessages() map[string]wire {
	return map[string]wire{
		"cut in a tag":              {0x80},
		"cut in a varint":           {3 << 3, 0x80},
		"cut in a string":           {1<<3 | 2, 5, 'a'},
		"cut in a fixed32":          {12<<3 | 5, 1, 2},
		"cut in a descriptor":       wire{}.bytes(2, []byte{1<<3 | 2, 9}),
		"cut in an entry":           wire{}.bytes(2, wire{}.bytes(1, []byte{1<<3 | 2, 9})),
		"cut in hits":               wire{}.bytes(2, wire{}.bytes(3, []byte{1 << 3})),
		"cut in a limit":            wire{}.bytes(2, wire{}.bytes(2, []byte{1 << 3})),
		"cut in a multiplier":       wire{}.bytes(2, wire{}.bytes(2, wire{}.bytes(3, []byte{1 << 3}))),
		"length beyond 2^63":        append(wire{1<<3 | 2}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
		"varint of eleven bytes":    append(wire{3 << 3}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
		"field number zero":         {0, 1},
		"field number too high":     append(wire{}, 0x80, 0x80, 0x80, 0x80, 0x10, 1),
		"end of no group":           {1<<3 | 4},
		"group left open":           {9<<3 | 3},
		"group closed by another":   {9<<3 | 3, 8<<3 | 4},
		"wire type six":             {1<<3 | 6},
		"wire type seven":           {1<<3 | 7},
		"text that is no protobuf":  wire("GET / HTTP/1.1"),
		"groups nested beyond 10⁴":  wire(strings.Repeat("\x4b", 20_000)),
		"bad unknown in descriptor": wire{}.bytes(2, []byte{9<<3 | 6}),
	}
}

func TestDecodeOddMessages(t *testing.T) {
	t.Parallel()
	for name, b := range oddMessages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m rlsv3.RateLimitRequest
			if err := proto.Unmarshal(b, &m); err != nil {
				t.Fatalf("generated code: %v", err)
			}
			got, err := decoded(t, b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(engineRequest(&m), got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("decoded (-generated +ours):\n%s", diff)
			}
		})
	}
}

func TestDecodeBadMessages(t *testing.T) {
	t.Parallel()
	for name, b := range badMessages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := proto.Unmarshal(b, new(rlsv3.RateLimitRequest)); err == nil {
				t.Fatal("generated code decodes it")
			}
			if _, err := decoded(t, b); !errors.Is(err, errMalformed) {
				t.Errorf("got %v, want %v", err, errMalformed)
			}
		})
	}
}

func TestDecodeInvalidUTF8AsBytes(t *testing.T) {
	t.Parallel()
	b := wire{}.text(1, "d\xff").bytes(2, wire{}.bytes(1, wire{}.text(1, "\x80").text(2, "\xc3\x28")))
	got, err := decoded(t, b)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Request{
		Domain:      "d\xff",
		Descriptors: []engine.Descriptor{{Entries: []rule.Entry{{Key: "\x80", Value: "\xc3\x28"}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestDecodeKeepsNeighboursApart(t *testing.T) {
	t.Parallel()
	got, err := decoded(t, marshalled(t, fullRequest()))
	if err != nil {
		t.Fatal(err)
	}
	_ = append(got.Descriptors[0].Entries, rule.Entry{Key: "intruder"})
	if k := got.Descriptors[2].Entries[0].Key; k != "k" {
		t.Errorf("the next descriptor's entry: got %q, want %q", k, "k")
	}
}

func TestDecodeBoundsWhatItKeeps(t *testing.T) {
	t.Parallel()
	const more = 100
	t.Run("descriptors", func(t *testing.T) {
		t.Parallel()
		c := new(call)
		if err := c.decode([]byte(strings.Repeat("\x12\x00", maxDescriptors+more))); err != nil {
			t.Fatal(err)
		}
		if got, want := c.descriptors(), maxDescriptors+more; got != want {
			t.Errorf("descriptors: got %d, want %d", got, want)
		}
		if !c.tooLarge() || len(c.req.Descriptors) != maxDescriptors {
			t.Errorf("kept %d, too large: %t; want %d, true", len(c.req.Descriptors), c.tooLarge(), maxDescriptors)
		}
	})
	t.Run("entries", func(t *testing.T) {
		t.Parallel()
		c := new(call)
		if err := c.decode(wire{}.bytes(2, []byte(strings.Repeat("\x0a\x00", maxEntries+more)))); err != nil {
			t.Fatal(err)
		}
		if !c.tooLarge() || len(c.entries) != maxEntries {
			t.Errorf("kept %d, too large: %t; want %d, true", len(c.entries), c.tooLarge(), maxEntries)
		}
	})
}

func TestReleasedCallsAreEmpty(t *testing.T) {
	t.Parallel()
	c := new(call)
	if err := c.decode(marshalled(t, fullRequest())); err != nil {
		t.Fatal(err)
	}
	c.verdict.Statuses = append(c.verdict.Statuses, engine.Status{Name: "n"})
	descriptors, entries, statuses := c.req.Descriptors, c.entries, c.verdict.Statuses
	c.reset()
	if diff := cmp.Diff(make([]engine.Descriptor, len(descriptors)), descriptors); diff != "" {
		t.Errorf("descriptors left:\n%s", diff)
	}
	if diff := cmp.Diff(make([]rule.Entry, len(entries)), entries); diff != "" {
		t.Errorf("entries left:\n%s", diff)
	}
	if diff := cmp.Diff(make([]engine.Status, len(statuses)), statuses); diff != "" {
		t.Errorf("statuses left:\n%s", diff)
	}
	if diff := cmp.Diff(engine.Request{}, c.req, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("request left:\n%s", diff)
	}
}

// FuzzDecode holds that we decode whatever generated code decodes, to the same request, and refuse what it refuses, save
// for text that is not UTF-8.
func FuzzDecode(f *testing.F) {
	f.Add(marshalled(f, fullRequest()))
	for _, b := range oddMessages() {
		f.Add([]byte(b))
	}
	for _, b := range badMessages() {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m rlsv3.RateLimitRequest
		generated := proto.Unmarshal(b, &m)
		got, err := decoded(t, b)
		switch {
		case generated == nil && err != nil:
			t.Fatalf("refused: %v; generated code decodes it to %v", err, &m)
		case generated == nil:
			if diff := cmp.Diff(engineRequest(&m), got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("decoded (-generated +ours):\n%s", diff)
			}
		case err == nil && !strings.Contains(generated.Error(), "UTF-8"):
			t.Fatalf("decoded to %+v; generated code refuses it: %v", got, generated)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	msg := marshalled(b, fullRequest())
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(msg, new(rlsv3.RateLimitRequest)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ours", func(b *testing.B) {
		c := new(call)
		b.ReportAllocs()
		for b.Loop() {
			c.reset()
			if err := c.decode(bytes.Clone(msg)); err != nil { // as the codec does, which keeps the text
				b.Fatal(err)
			}
		}
	})
}
