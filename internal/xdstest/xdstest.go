// Package xdstest hides how a control plane is run for a test: go-control-plane's own server over its snapshot cache, as
// Envoy Gateway runs it, on a free port.
package xdstest

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// ControlPlane serves RateLimitConfigs to one node, by aggregated discovery. Safe for concurrent use; made by Start.
type ControlPlane struct {
	Addr string // "127.0.0.1:port"

	node string
	tls  *tls.Config

	mu       sync.Mutex // guards what follows
	cache    cache.SnapshotCache
	server   *grpc.Server
	serving  chan struct{} // closed when the server has ended
	requests []*discoveryv3.DiscoveryRequest
	headers  []metadata.MD
}

// Start runs a control plane for the node of that id until the test ends. It has nothing to say yet. Without t it speaks
// plaintext.
func Start(tb testing.TB, node string, t *tls.Config) *ControlPlane {
	tb.Helper()
	c := &ControlPlane{Addr: "127.0.0.1:0", node: node, tls: t}
	c.Restart(tb)
	tb.Cleanup(c.Stop)
	return c
}

// Restart begins anew at the same address, as a process does: with nothing to say.
func (c *ControlPlane) Restart(tb testing.TB) {
	tb.Helper()
	c.Stop()
	ln, err := net.Listen("tcp", c.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	creds := insecure.NewCredentials()
	if c.tls != nil {
		creds = credentials.NewTLS(c.tls)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Addr = ln.Addr().String()
	c.cache = cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	c.server = grpc.NewServer(grpc.Creds(creds))
	callbacks := server.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
			md, _ := metadata.FromIncomingContext(ctx)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.headers = append(c.headers, md)
			return nil
		},
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.requests = append(c.requests, proto.Clone(r).(*discoveryv3.DiscoveryRequest))
			return nil
		},
	}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(c.server, server.NewServer(context.Background(), c.cache, callbacks))
	s, serving := c.server, make(chan struct{})
	c.serving = serving
	go func() {
		defer close(serving)
		_ = s.Serve(ln) // Stop ends it
	}()
}

// Stop ends every stream, and closes the port.
func (c *ControlPlane) Stop() {
	c.mu.Lock()
	s, serving := c.server, c.serving
	c.server = nil
	c.mu.Unlock()
	if s != nil {
		s.Stop()
		<-serving
	}
}

// Set makes these the resources from now on, by the name of that version.
func (c *ControlPlane) Set(tb testing.TB, version string, configs ...*ratelimitv3.RateLimitConfig) {
	tb.Helper()
	resources := make([]types.Resource, len(configs))
	for i, config := range configs {
		resources[i] = config
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources})
	if err != nil {
		tb.Fatal(err)
	}
	c.mu.Lock()
	current := c.cache
	c.mu.Unlock()
	if err := current.SetSnapshot(context.Background(), c.node, snapshot); err != nil {
		tb.Fatal(err)
	}
}

// Requests returns what was asked so far, over all streams.
func (c *ControlPlane) Requests() []*discoveryv3.DiscoveryRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*discoveryv3.DiscoveryRequest(nil), c.requests...)
}

// Headers returns those of each stream so far.
func (c *ControlPlane) Headers() []metadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]metadata.MD(nil), c.headers...)
}

// Limit returns a config of one domain, its name also that of the resource, in which any value of a key has a limit.
func Limit(domain, key string, unit ratelimitv3.RateLimitUnit, requests uint32) *ratelimitv3.RateLimitConfig {
	return &ratelimitv3.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		Key: key, RateLimit: &ratelimitv3.RateLimitPolicy{Unit: unit, RequestsPerUnit: requests},
	}}}
}
