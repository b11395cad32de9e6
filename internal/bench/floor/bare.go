package floor

import (
	"context"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// NewBare returns what is left of a call when nothing is read and nothing decided: gRPC set up as the service sets it up,
// and a codec that looks at no request and has one answer for all. What the service costs beyond it is the service's own.
func NewBare(options ...grpc.ServerOption) (*grpc.Server, error) {
	resp, err := constant{}.ShouldRateLimit(context.Background(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := proto.Marshal(resp)
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(append(options, grpc.ForceServerCodecV2(deaf{mem.SliceBuffer(answer)}))...)
	desc := rlsv3.RateLimitService_ServiceDesc
	desc.Methods = []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		return &desc, decode(&desc)
	}}}
	s.RegisterService(&desc, constant{})
	return s, nil
}

// deaf is that codec.
type deaf struct{ answer mem.SliceBuffer }

func (d deaf) Marshal(any) (mem.BufferSlice, error) { return mem.BufferSlice{d.answer}, nil }
func (deaf) Unmarshal(mem.BufferSlice, any) error   { return nil }
func (deaf) Name() string                           { return "proto" }
