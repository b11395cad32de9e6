package transport

import (
	"fmt"
	"maps"
	"math"
	"slices"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// appendMetadata appends the fields of the google.protobuf.Struct that Envoy stores as dynamic metadata.
func appendMetadata(b []byte, c *call) []byte {
	fields := map[string]any{"domain": c.req.Domain}
	if c.verdict.Envoy {
		addRequest(fields, &c.req)
	} else {
		addDecision(fields, &c.verdict)
	}
	if b := c.verdict.Blocked; b != nil {
		fields["blocked"] = map[string]any{"key": b.Key, "match": b.Match, "reason": b.Reason}
	}
	if merged := passedMetadata(&c.verdict); len(merged) > 0 {
		fields["metadata"] = merged
	}
	return appendStruct(b, fields)
}

// addDecision tells which rule decided, and how.
func addDecision(fields map[string]any, v *engine.Verdict) {
	fields["over"] = v.Over
	if v.WouldDeny {
		fields["would_deny"] = true
	}
	s := deciding(v)
	if s == nil {
		return
	}
	fields["rule"] = rulePath(s)
	if s.Name != "" {
		fields["limit"] = s.Name
	}
	fields["remaining"] = s.Remaining
	fields["origin"] = originName(s)
}

func originName(s *engine.Status) string {
	switch {
	case s.Unpaid, s.Origin == store.Unavailable:
		return "unavailable"
	case s.Origin == store.FromLease:
		return "lease"
	case s.Origin == store.FromLocal:
		return "local"
	case s.Origin == store.FromDeniedCache:
		return "denied_cache"
	default:
		return "store"
	}
}

// addRequest repeats the request as the reference service does (its ratelimitToMetadata): entries as key=value, a limit
// in protobuf's text form, hits_addend where given.
func addRequest(fields map[string]any, req *engine.Request) {
	descriptors := make([]any, len(req.Descriptors))
	for i := range req.Descriptors {
		d := &req.Descriptors[i]
		entries := make([]any, len(d.Entries))
		for j, e := range d.Entries {
			entries[j] = e.Key + "=" + e.Value
		}
		descriptor := map[string]any{"entries": entries}
		if d.HasOverride {
			descriptor["limit"] = overrideText(&d.Override)
		}
		if d.HasHits {
			descriptor["hitsAddend"] = d.Hits
		}
		descriptors[i] = descriptor
	}
	fields["descriptors"] = descriptors
	if req.Hits != 0 {
		fields["hitsAddend"] = req.Hits
	}
}

func overrideText(o *engine.Override) string {
	s := ""
	if o.Requests != 0 {
		s = fmt.Sprintf("requests_per_unit:%d", o.Requests)
	}
	if o.Unit != 0 {
		if s != "" {
			s += " "
		}
		s += "unit:" + typev3.RateLimitUnit(o.Unit).String()
	}
	if o.HasMultiplier {
		if s != "" {
			s += " "
		}
		s += fmt.Sprintf("unit_multiplier:{value:%d}", o.Multiplier)
	}
	return s
}

// passedMetadata merges the metadata of the rules whose descriptors passed, in order. Maps are merged key by key; of two
// other values for one key the first holds. The rules' own maps are not touched.
func passedMetadata(v *engine.Verdict) map[string]any {
	var merged map[string]any
	for i := range v.Statuses {
		if s := &v.Statuses[i]; !s.Over && s.Rule != nil && len(s.Rule.Metadata) > 0 {
			merged = merge(merged, s.Rule.Metadata)
		}
	}
	return merged
}

// merge returns first with what second adds to it. Neither is written.
func merge(first, second map[string]any) map[string]any {
	if len(first) == 0 {
		return second
	}
	out := maps.Clone(first)
	for k, v := range second {
		have, ok := out[k]
		if !ok {
			out[k] = v
			continue
		}
		a, okA := have.(map[string]any)
		b, okB := v.(map[string]any)
		if okA && okB {
			out[k] = merge(a, b)
		}
	}
	return out
}

// Numbers of the fields of google.protobuf.Struct, its map's entries, Value and ListValue.
const (
	structFields = 1
	entryKeyNum  = 1
	entryValNum  = 2
	valueNull    = 1
	valueNumber  = 2
	valueString  = 3
	valueBool    = 4
	valueStruct  = 5
	valueList    = 6
	listValues   = 1
)

// appendStruct appends the fields of a Struct in key order.
func appendStruct(b []byte, fields map[string]any) []byte {
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		var entry, value mark
		b, entry = openMessage(b, structFields)
		b = appendText(b, entryKeyNum, k)
		b, value = openMessage(b, entryValNum)
		b = appendValue(b, fields[k])
		b = closeMessage(b, value)
		b = closeMessage(b, entry)
	}
	return b
}

// appendValue appends the one field of a Value. A value of no JSON type is written as text.
func appendValue(b []byte, v any) []byte {
	var m mark
	switch v := v.(type) {
	case nil:
		return protowire.AppendVarint(appendTag(b, valueNull, protowire.VarintType), 0)
	case bool:
		return protowire.AppendVarint(appendTag(b, valueBool, protowire.VarintType), protowire.EncodeBool(v))
	case map[string]any:
		b, m = openMessage(b, valueStruct)
		b = appendStruct(b, v)
		return closeMessage(b, m)
	case []any:
		b, m = openMessage(b, valueList)
		for _, e := range v {
			var item mark
			b, item = openMessage(b, listValues)
			b = appendValue(b, e)
			b = closeMessage(b, item)
		}
		return closeMessage(b, m)
	case string:
		return appendStringValue(b, v)
	default:
		if f, ok := number(v); ok {
			return protowire.AppendFixed64(appendTag(b, valueNumber, protowire.Fixed64Type), math.Float64bits(f))
		}
		return appendStringValue(b, fmt.Sprint(v))
	}
}

// appendStringValue appends a string of a oneof, which is written even when empty.
func appendStringValue(b []byte, s string) []byte {
	if s == "" {
		return protowire.AppendString(appendTag(b, valueString, protowire.BytesType), "")
	}
	return appendText(b, valueString, s)
}

// number returns v as JSON has it, if it is a number.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case uint32:
		return float64(v), true
	}
	return 0, false
}
