package transport

import (
	"context"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// service answers decoded calls, whichever door they came through. Safe for concurrent use.
type service struct {
	Options
	answerer *answerer
	answered answered
}

func newService(o Options, a answered) *service {
	return &service{Options: o, answerer: newAnswerer(o), answered: a}
}

// decide decides c and returns the encoded RateLimitResponse in a buffer of that pool, or a status.
func (s *service) decide(ctx context.Context, c *call, pool mem.BufferPool) (*[]byte, error) {
	if err := s.verdict(ctx, c); err != nil {
		st := statusOf(err)
		s.answered.count(st.Code())
		return nil, st.Err()
	}
	s.answered.count(codes.OK)
	var now time.Time
	if s.answerer.needsTime(c) {
		now = s.Now()
	}
	b := pool.Get(s.answerer.size(c))
	*b = s.answerer.append((*b)[:0], c, now)
	return b, nil
}

func (s *service) verdict(ctx context.Context, c *call) error {
	switch {
	case c.undecodable != nil:
		return c.undecodable
	case c.tooLarge() && c.req.Domain != "":
		return nil // refused without being asked: see answerer.answer
	case c.tooLarge():
		return engine.ErrEmptyDomain
	}
	return s.Decider.Decide(ctx, &c.req, &c.verdict)
}

// rls describes Envoy's RateLimitService with a handler that works on calls instead of generated types. Its name and the
// file that declares it, which reflection shows, are those of the generated description.
var rls = grpc.ServiceDesc{
	ServiceName: rlsv3.RateLimitService_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}},
	Metadata:    rlsv3.RateLimitService_ServiceDesc.Metadata,
}

func shouldRateLimit(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	c := newCall()
	defer c.release()
	if err := decode(c); err != nil {
		return nil, err // gRPC's own: the message is too large, the stream broke
	}
	if interceptor == nil {
		return srv.(*service).handle(ctx, c)
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName}
	return interceptor(ctx, c, info, srv.(*service).handle)
}

// handle is a grpc.UnaryHandler. What it returns is encoded already: see codec.Marshal.
func (s *service) handle(ctx context.Context, c any) (any, error) {
	b, err := s.decide(ctx, c.(*call), &answers)
	if err != nil {
		return nil, err // not b: a nil pointer in an interface is no nil
	}
	return b, nil
}
