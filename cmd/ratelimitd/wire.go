package main

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// appendRequest appends a request as envoy.service.ratelimit.v3.RateLimitRequest. It is written by hand, since generated
// code refuses text that is no valid UTF-8, and Envoy sends such: what a header holds is any bytes.
func appendRequest(b []byte, req *engine.Request) []byte {
	b = appendText(b, 1, req.Domain)
	for i := range req.Descriptors {
		b = appendText(b, 2, string(appendDescriptor(nil, &req.Descriptors[i])))
	}
	return appendNumber(b, 3, uint64(req.Hits))
}

func appendDescriptor(b []byte, d *engine.Descriptor) []byte {
	for _, e := range d.Entries {
		b = appendText(b, 1, string(appendText(appendText(nil, 1, e.Key), 2, e.Value)))
	}
	if d.HasOverride {
		limit := appendNumber(nil, 1, uint64(d.Override.Requests))
		limit = appendNumber(limit, 2, uint64(d.Override.Unit))
		if d.Override.HasMultiplier {
			limit = appendText(limit, 3, string(appendNumber(nil, 1, uint64(d.Override.Multiplier))))
		}
		b = appendText(b, 2, string(limit))
	}
	if d.HasHits {
		b = appendText(b, 3, string(appendNumber(nil, 1, d.Hits)))
	}
	if d.Refund {
		b = appendNumber(b, 4, 1)
	}
	return b
}

// appendText appends a field of text, of bytes or of a message.
func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// appendNumber appends a field of a whole number; 0 is what a field has that is not there.
func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// encoded is a gRPC codec that sends messages which are bytes already, and leaves all others to gRPC's own.
type encoded struct{ encoding.CodecV2 }

func newEncoded() encoded { return encoded{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (c encoded) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}
