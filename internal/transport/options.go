package transport

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// Decider decides requests; an *engine.Engine is one. Implementations are safe for concurrent use and keep neither
// argument.
type Decider interface {
	// Decide answers req into v, overwriting it whole. An error is one of the engine's sentinels and leaves v meaningless.
	Decide(ctx context.Context, req *engine.Request, v *engine.Verdict) error
}

// Options configures NewGRPC and HTTP. Only Decider must be set; the zero value of the rest answers statuses alone, with
// no headers, body or metadata.
type Options struct {
	Decider          Decider
	Snapshots        engine.Snapshots // what /readyz?verbose tells of; nil: nothing
	Serving          func() bool      // whether /healthcheck and /readyz say yes; nil: always
	Degraded         func() []string  // what /readyz?verbose says is amiss although there are answers, a sentence each; nil: nothing
	Reflection       bool             // serve gRPC reflection
	ResponseMetadata bool             // answer with dynamic metadata: the deciding rule, what remains, where it was paid
	RetryJitter      bool             // spread Retry-After, so that clients refused together do not return together
	Problem          bool             // refuse with a problem+json body (RFC 9457) and its content-type
	Headers          Headers
	TLS              *tls.Config           // of the gRPC port; nil: none
	MaxAge           time.Duration         // of a gRPC connection, ±10 %; 0: 30 minutes
	MaxAgeGrace      time.Duration         // for calls in flight after that; 0: 10 seconds
	Now              func() time.Time      // nil: time.Now
	Registerer       prometheus.Registerer // nil: no metrics
	Logger           *slog.Logger          // nil: slog.Default()
	ServerOptions    []grpc.ServerOption   // appended to the server's own, so they win
}

// Headers chooses the response headers of an answer. Retry-After is sent on every denial of the native profile that a
// wait can end, whatever is chosen. The zero value adds no other header.
type Headers struct {
	IETF   bool   // RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11), native profile
	Legacy Legacy // an older family beside or instead of them, native profile

	// Reference adds the three headers of the reference service (its LIMIT_RESPONSE_HEADERS_ENABLED) to answers of domains
	// whose profile is envoy. An empty name means the default.
	Reference                                 bool
	LimitHeader, RemainingHeader, ResetHeader string // RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset
}

// Legacy is an older family of headers: X-RateLimit-Limit, -Remaining and -Reset. The zero value is LegacyOff.
type Legacy uint8

// The families. They differ in what Limit and Reset mean, so only one can be chosen.
const (
	LegacyOff    Legacy = iota
	LegacyEnvoy         // as Envoy writes them (DRAFT_VERSION_03): Limit with its policy, Reset in seconds from now
	LegacyGitHub        // as GitHub writes them: Limit bare, Reset as seconds since the epoch
)

func (o Options) withDefaults() Options {
	if o.Serving == nil {
		o.Serving = func() bool { return true }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxAge == 0 {
		o.MaxAge = maxConnectionAge
	}
	if o.MaxAgeGrace == 0 {
		o.MaxAgeGrace = maxAgeGrace
	}
	h := &o.Headers
	for _, d := range []struct {
		name *string
		def  string
	}{
		{&h.LimitHeader, "RateLimit-Limit"},
		{&h.RemainingHeader, "RateLimit-Remaining"},
		{&h.ResetHeader, "RateLimit-Reset"},
	} {
		if *d.name == "" {
			*d.name = d.def
		}
	}
	return o
}
