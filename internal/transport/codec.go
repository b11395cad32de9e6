package transport

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec reads and writes calls by hand, and leaves the messages of other services (health, reflection) to gRPC's own
// codec. Safe for concurrent use.
type codec struct{ others encoding.CodecV2 }

func newCodec() codec { return codec{others: encoding.GetCodecV2(proto.Name)} }

// encoded is an encoded message.
type encoded []byte

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.others.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. Bytes that are no message are noted in the call and are no error here: gRPC
// would call it INTERNAL, a fault of ours.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	call, ok := v.(*call)
	if !ok {
		return c.others.Unmarshal(data, v)
	}
	call.reset() // gRPC decodes into it twice if a client sends a second message
	call.undecodable = call.decode(data.Materialize())
	return nil
}

// Name implements encoding.CodecV2.
func (c codec) Name() string { return proto.Name }
