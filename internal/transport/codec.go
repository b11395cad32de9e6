package transport

import (
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec reads and writes calls by hand, and leaves the messages of other services (health, reflection) to gRPC's own
// codec. Safe for concurrent use.
type codec struct{ others encoding.CodecV2 }

func newCodec() codec { return codec{others: encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2. An answer has been encoded into a buffer of answers already, and gRPC gives it back
// once it is written.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(*[]byte); ok {
		return mem.BufferSlice{mem.NewBuffer(b, &answers)}, nil
	}
	return c.others.Marshal(v)
}

// answers are the buffers that answers of gRPC are encoded into.
var answers buffers

// buffers is a mem.BufferPool. Its zero value is ready; safe for concurrent use.
type buffers struct{ idle sync.Pool }

const (
	newBuffer  = 2 << 10  // bytes; gRPC gives back none of 1 KiB or less
	keptBuffer = 16 << 10 // larger ones are left to the garbage collector
)

// Get implements mem.BufferPool.
func (p *buffers) Get(size int) *[]byte {
	b, ok := p.idle.Get().(*[]byte)
	if !ok || cap(*b) < size {
		made := make([]byte, size, max(size, newBuffer))
		return &made
	}
	*b = (*b)[:size]
	return b
}

// Put implements mem.BufferPool.
func (p *buffers) Put(b *[]byte) {
	if cap(*b) <= keptBuffer {
		p.idle.Put(b)
	}
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
