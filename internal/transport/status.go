package transport

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// The errors that callers see. Envoy lets a request pass on an error unless told otherwise, so no error may depend on
// what a stranger can put into a request: these say that the proxy or the deployment is set up wrongly. All else is
// answered with a decision.
var (
	statusUndecodable   = status.New(codes.InvalidArgument, "the request is not a RateLimitRequest")
	statusEmptyDomain   = status.New(codes.InvalidArgument, "the request names no domain")
	statusNoDescriptors = status.New(codes.InvalidArgument, "the request has no descriptors")
	statusNoRules       = status.New(codes.Unavailable, "no rules are loaded yet")
	statusInternal      = status.New(codes.Internal, "internal error")
)

// statusOf returns what a caller is told of err, which is not nil.
func statusOf(err error) *status.Status {
	switch {
	case errors.Is(err, errMalformed):
		return statusUndecodable
	case errors.Is(err, engine.ErrEmptyDomain):
		return statusEmptyDomain
	case errors.Is(err, engine.ErrNoDescriptors):
		return statusNoDescriptors
	case errors.Is(err, engine.ErrNoRules):
		return statusNoRules
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err) // the caller is gone and hears nothing
	default:
		return statusInternal
	}
}
