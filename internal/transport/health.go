package transport

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Names that health checks may ask for. The empty name and ratelimit follow SetServing; liveness is served while the
// process lives, so that a probe for it never restarts a node that is only draining or has no rules yet.
const (
	healthOverall   = ""
	healthRateLimit = "ratelimit"
	healthLiveness  = "liveness"
)

// healthService is gRPC's health service, whose watchers can be sent home. A watch has no end of its own, so one would
// hold up a drain.
type healthService struct {
	*health.Server
	leave context.Context // done when watchers must go
	send  context.CancelFunc
}

func newHealthService() *healthService {
	h := &healthService{Server: health.NewServer()}
	h.leave, h.send = context.WithCancel(context.Background())
	h.setServing(false)
	h.SetServingStatus(healthLiveness, healthpb.HealthCheckResponse_SERVING)
	return h
}

func (h *healthService) setServing(serving bool) {
	s := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		s = healthpb.HealthCheckResponse_SERVING
	}
	h.SetServingStatus(healthOverall, s)
	h.SetServingStatus(healthRateLimit, s)
}

// Watch implements healthpb.HealthServer.
func (h *healthService) Watch(req *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(h.leave, cancel)()
	err := h.Server.Watch(req, watcher{stream, ctx})
	if h.leave.Err() != nil {
		return status.Error(codes.Unavailable, "the server is draining")
	}
	return err
}

// watcher is a stream with a context of our own.
type watcher struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (w watcher) Context() context.Context { return w.ctx }
