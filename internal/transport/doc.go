// Package transport is the wire: Envoy's RateLimitService over gRPC, and /json, /healthcheck and /readyz over HTTP.
//
// It hides protobuf, gRPC and HTTP from the rest. A request is decoded from the wire straight into an engine.Request,
// decided by a Decider, and its verdict is encoded straight to the wire with the headers, the body and the metadata that
// callers read; generated types appear only where JSON or a method of reflection needs them. It chooses which errors a
// caller sees (status.go): whatever depends on a request's content is answered with a decision, since Envoy lets a
// request pass on an error.
//
// NewGRPC makes the gRPC server, HTTP and RLConfig make handlers, NewHTTPServer a server with safe timeouts. It matches no
// rule, counts no decision and opens no listener.
package transport
