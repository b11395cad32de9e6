// Package floor is what decisions are measured against: a gRPC server as it comes, generated code and all defaults, that
// gives every request the same answer. Nobody who serves Envoy's protocol by grpc-go and decides something besides can cost
// less, unless by the ways in which this one is left as it comes.
package floor

import (
	"context"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// New returns the server; its Serve takes a listener.
func New() *grpc.Server {
	s := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(s, constant{})
	return s
}

type constant struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

// ShouldRateLimit implements Envoy's service: OK, with a status as a limiter would give.
func (constant) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return &rlsv3.RateLimitResponse{
		OverallCode: rlsv3.RateLimitResponse_OK,
		Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{{
			Code:           rlsv3.RateLimitResponse_OK,
			CurrentLimit:   &rlsv3.RateLimitResponse_RateLimit{RequestsPerUnit: 1000, Unit: rlsv3.RateLimitResponse_RateLimit_HOUR},
			LimitRemaining: 999,
		}},
	}, nil
}
