package transport

import (
	"errors"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// errMalformed says that bytes are no protobuf message.
var errMalformed = errors.New("malformed protobuf")

// A request may hold this many descriptors, and this many entries in all of them. What comes beyond is counted but not
// kept, so that the memory of a request stays a small multiple of its 4 MiB: an empty descriptor is 2 bytes on the wire
// and more than a hundred decoded. No proxy comes near; such a request is refused (see call.excess).
const (
	maxDescriptors = 1 << 17
	maxEntries     = 1 << 17
)

// Tags of the fields we read, a number and a wire type. A known number with another wire type is an unknown field, as in
// generated code, and skipped.
const (
	// Of envoy.service.ratelimit.v3.RateLimitRequest.
	requestDomain      = 1<<3 | uint64(protowire.BytesType)
	requestDescriptors = 2<<3 | uint64(protowire.BytesType)
	requestHitsAddend  = 3<<3 | uint64(protowire.VarintType)

	// Of envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.
	descriptorEntries        = 1<<3 | uint64(protowire.BytesType)
	descriptorLimit          = 2<<3 | uint64(protowire.BytesType)
	descriptorHitsAddend     = 3<<3 | uint64(protowire.BytesType)
	descriptorIsNegativeHits = 4<<3 | uint64(protowire.VarintType)

	// Of RateLimitDescriptor.Entry.
	entryKey   = 1<<3 | uint64(protowire.BytesType)
	entryValue = 2<<3 | uint64(protowire.BytesType)

	// Of RateLimitDescriptor.RateLimitOverride.
	overrideRequestsPerUnit = 1<<3 | uint64(protowire.VarintType)
	overrideUnit            = 2<<3 | uint64(protowire.VarintType)
	overrideUnitMultiplier  = 3<<3 | uint64(protowire.BytesType)

	// Of google.protobuf.UInt32Value and UInt64Value.
	wrapperValue = 1<<3 | uint64(protowire.VarintType)
)

// field is one field of a message: its tag and its value, in num if a varint, in bytes if length-delimited.
type field struct {
	tag   uint64
	num   uint64
	bytes []byte
}

// nextField splits the first field off b and returns what follows it. Values of other wire types are skipped.
func nextField(b []byte) (f field, rest []byte, err error) {
	// Nearly every field: a number below 16 and less than 128 bytes, each length in one.
	if len(b) >= 2 && b[0] < 0x80 && b[0] > 7 && protowire.Type(b[0]&7) == protowire.BytesType && int(b[1]) <= min(len(b)-2, 0x7f) {
		end := 2 + int(b[1])
		return field{tag: uint64(b[0]), bytes: b[2:end]}, b[end:], nil
	}
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num > protowire.MaxValidNumber {
		return field{}, nil, errMalformed
	}
	b = b[n:]
	f.tag = protowire.EncodeTag(num, typ)
	switch typ {
	case protowire.VarintType:
		f.num, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
	default:
		n = protowire.ConsumeFieldValue(num, typ, b)
	}
	if n < 0 {
		return field{}, nil, errMalformed
	}
	return f, b[n:], nil
}

// text returns b as a string without copying it. Every message is decoded from a buffer of its own that is never written
// again, so the string is as immutable as any; it keeps the whole message alive.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// decode reads a RateLimitRequest into c, which must be empty. It keeps b. Text is taken as bytes, valid UTF-8 or not: Envoy
// forwards raw header bytes, and one stray byte must not switch a limit off.
func (c *call) decode(b []byte) error {
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return err
		}
		b = rest
		switch f.tag {
		case requestDomain:
			c.req.Domain = text(f.bytes)
		case requestDescriptors:
			if err := c.decodeDescriptor(f.bytes); err != nil {
				return err
			}
		case requestHitsAddend:
			c.req.Hits = uint32(f.num) // protobuf cuts a varint to the field's 32 bits
		}
	}
	return nil
}

// decodeDescriptor appends a descriptor. Submessages that appear twice are merged, as protobuf says.
func (c *call) decodeDescriptor(b []byte) error {
	var d engine.Descriptor
	first := len(c.entries)
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return err
		}
		b = rest
		switch f.tag {
		case descriptorEntries:
			err = c.decodeEntry(f.bytes)
		case descriptorLimit:
			d.HasOverride = true
			err = decodeOverride(&d.Override, f.bytes)
		case descriptorHitsAddend:
			d.HasHits = true
			err = decodeWrapper(&d.Hits, f.bytes)
		case descriptorIsNegativeHits:
			d.Refund = f.num != 0
		}
		if err != nil {
			return err
		}
	}
	if len(c.req.Descriptors) == maxDescriptors {
		c.excess++
		return nil
	}
	// The capacity is cut so that no append to a descriptor's entries writes into its neighbour's.
	d.Entries = c.entries[first:len(c.entries):len(c.entries)]
	c.req.Descriptors = append(c.req.Descriptors, d)
	return nil
}

func (c *call) decodeEntry(b []byte) error {
	var e rule.Entry
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return err
		}
		b = rest
		switch f.tag {
		case entryKey:
			e.Key = text(f.bytes)
		case entryValue:
			e.Value = text(f.bytes)
		}
	}
	if len(c.entries) == maxEntries {
		c.tooManyEntries = true
		return nil
	}
	c.entries = append(c.entries, e)
	return nil
}

func decodeOverride(o *engine.Override, b []byte) error {
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return err
		}
		b = rest
		switch f.tag {
		case overrideRequestsPerUnit:
			o.Requests = uint32(f.num) // as above
		case overrideUnit:
			o.Unit = int32(f.num) // as above; open enums may be negative
		case overrideUnitMultiplier:
			o.HasMultiplier = true
			v := uint64(o.Multiplier)
			if err := decodeWrapper(&v, f.bytes); err != nil {
				return err
			}
			o.Multiplier = uint32(v) // as above
		}
	}
	return nil
}

// decodeWrapper merges a UInt64Value or UInt32Value into v: an empty one changes nothing.
func decodeWrapper(v *uint64, b []byte) error {
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return err
		}
		b = rest
		if f.tag == wrapperValue {
			*v = f.num
		}
	}
	return nil
}
