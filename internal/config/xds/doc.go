// Package xds is a config.Source that asks a control plane for the rules, as the reference service (envoyproxy/ratelimit)
// does: one stream of Envoy's aggregated discovery service, on which it subscribes to every RateLimitConfig there is.
//
// It hides the protocol: streams that break and come back, versions and nonces, ACK and NACK, and the proto types, which
// stop here: a resource becomes the text of a rule file, so that it is checked and refused as one, and a mistake is
// reported in the same words. It compiles nothing, and keeps nothing but what it has to tell the control plane.
package xds
