package transport

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
)

// guarded registers services whose handlers, decoding included, cannot end the process by a panic.
//
// A panic is a bug of ours that we know nothing about: it may strike one odd request or all of them. It is answered with
// INTERNAL, which leaves the choice to the proxy's failure mode, set by the people who own the route. Refusing instead
// would make such a bug an outage of everything behind the proxy.
type guarded struct {
	*grpc.Server
	panicked func(where string, value any)
}

// RegisterService implements grpc.ServiceRegistrar.
func (g guarded) RegisterService(d *grpc.ServiceDesc, impl any) {
	desc := *d
	desc.Methods = make([]grpc.MethodDesc, len(d.Methods))
	for i, m := range d.Methods {
		desc.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: g.method(d.ServiceName+"/"+m.MethodName, m.Handler)}
	}
	desc.Streams = make([]grpc.StreamDesc, len(d.Streams))
	for i, s := range d.Streams {
		desc.Streams[i] = s
		desc.Streams[i].Handler = g.stream(d.ServiceName+"/"+s.StreamName, s.Handler)
	}
	g.Server.RegisterService(&desc, impl)
}

func (g guarded) method(name string, h grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor) (_ any, err error) {
		defer g.recover(name, &err)
		return h(srv, ctx, decode, i)
	}
}

func (g guarded) stream(name string, h grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) (err error) {
		defer g.recover(name, &err)
		return h(srv, stream)
	}
}

// recover must be deferred itself.
func (g guarded) recover(where string, err *error) {
	if v := recover(); v != nil {
		g.panicked(where, v)
		*err = statusInternal.Err()
	}
}

// logPanic logs a recovered panic with its stack. It must be called while panicking.
func logPanic(l *slog.Logger, where string, value any) {
	l.Error("panic in a handler", "handler", where, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
}
