// Package admin is what people do to a deployment while it runs: the service of the admin port, and who may call it.
//
// A Server answers the calls of api/proto/ratelimitd/v1/admin.proto as gRPC and, under the same paths, as JSON over HTTP;
// Guard stands before everything on the port. The package hides both, and that proto types stop here. What a change means
// is for the packages that make it: config publishes rules, override keeps overrides, ledger has the audit log.
package admin
