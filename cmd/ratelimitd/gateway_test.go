package main

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	confv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/xdstest"
)

// gatewayDomain is a domain as Envoy Gateway names one: by namespace, gateway and listener.
const gatewayDomain = "default/eg/http"

// gatewayRoute is what Envoy Gateway calls a route without hostnames, the asterisk included.
const gatewayRoute = "httproute/default/backend/rule/0/match/0/*"

// gatewayConfig is what Envoy Gateway makes of a policy: requests a unit for each x-user-id of one route.
func gatewayConfig(requests uint32, unit confv3.RateLimitUnit) *confv3.RateLimitConfig {
	return &confv3.RateLimitConfig{Name: gatewayDomain, Domain: gatewayDomain, Descriptors: []*confv3.RateLimitDescriptor{{
		Key: gatewayRoute, Value: gatewayRoute, Descriptors: []*confv3.RateLimitDescriptor{{
			Key: "rule-0-match-0", RateLimit: &confv3.RateLimitPolicy{Unit: unit, RequestsPerUnit: requests},
		}},
	}}}
}

// gatewayRequest is what Envoy asks for a request of that route.
func gatewayRequest(user string) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: gatewayDomain, Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		Entries: []*ratelimitv3.RateLimitDescriptor_Entry{
			{Key: gatewayRoute, Value: gatewayRoute}, {Key: "rule-0-match-0", Value: user},
		},
	}}}
}

// gateway is a control plane as Envoy Gateway's, a ratelimitd that follows it, and a client as its Envoy.
type gateway struct {
	*xdstest.ControlPlane
	t      *testing.T
	s      *server
	conn   *grpc.ClientConn
	client rlsv3.RateLimitServiceClient
}

// ask asks for a user, and returns the answer's code.
func (g *gateway) ask(user string) rlsv3.RateLimitResponse_Code {
	g.t.Helper()
	resp, err := g.client.ShouldRateLimit(g.t.Context(), gatewayRequest(user))
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.GetOverallCode()
}

// becomes waits for a limit, 0 for none.
func (g *gateway) becomes(limit uint32) {
	g.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		resp, err := g.client.ShouldRateLimit(g.t.Context(), gatewayRequest("somebody else"))
		if err == nil && resp.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() == limit {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("got %v, %v, want a limit of %d within %v", resp, err, limit, patience)
		}
	}
}

// A control plane like Envoy Gateway's drives a process: limits arrive, change, and a bad version is refused with its
// mistake while the last good one stays. The process is told of the control plane by our flags, or by exactly the
// environment that Envoy Gateway gives the reference service, which it replaces by name.
func TestEnvoyGateway(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	pair := authority.Issue(t, certtest.Leaf{DNSNames: []string{"envoy-gateway"}})
	tests := map[string]func(t *testing.T, plane string) *server{
		"by flags": func(t *testing.T, plane string) *server {
			return startProcess(t, nil, append([]string{"ratelimitd", "serve", "--default-profile", "envoy", "--start-without-rules",
				"--allow-empty-rules", "--xds-server", plane, "--xds-node-id", "envoy-ratelimit", "--xds-tls-cert", pair.CertFile,
				"--xds-tls-key", pair.KeyFile, "--xds-tls-ca", authority.File, "--redis-url", redistest.Start(t).URL(), "--redis-timeout", "2s",
				"--grpc-tls-cert", pair.CertFile, "--grpc-tls-key", pair.KeyFile}, freePorts()...)...)
		},
		"by Envoy Gateway's environment": func(t *testing.T, plane string) *server {
			return startProcess(t, append(slices.Clone(ports),
				"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
				"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW",
				"CONFIG_GRPC_XDS_SERVER_URL="+plane, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
				"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+pair.CertFile, "GRPC_SERVER_TLS_KEY="+pair.KeyFile,
				"GRPC_SERVER_TLS_CA_CERT="+authority.File,
				"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+pair.CertFile,
				"CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+pair.KeyFile, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+authority.File,
				"FORCE_START_WITHOUT_INITIAL_CONFIG=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redistest.Start(t).Addr,
				"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:19001", "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
				"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=100ms"), // of this test, for haste; Envoy Gateway leaves the default of 10 s
				referenceName, "--quotaRateLimitServiceAddr=as-AI-Gateway-passes-it")
		},
	}
	for name, serve := range tests {
		t.Run(name, func(t *testing.T) {
			certificate, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
			if err != nil {
				t.Fatal(err)
			}
			plane := xdstest.Start(t, "envoy-ratelimit", &tls.Config{
				Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool,
				MinVersion: tls.VersionTLS13,
			})
			g := &gateway{ControlPlane: plane, t: t, s: serve(t, plane.Addr)}
			g.conn, err = grpc.NewClient(g.s.GRPC, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
				RootCAs: authority.Pool, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
			})))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { g.conn.Close() })
			g.client = rlsv3.NewRateLimitServiceClient(g.conn)
			g.drive()
		})
	}
}

// drive has the control plane say one thing after another.
func (g *gateway) drive() {
	t := g.t
	_, err := g.client.ShouldRateLimit(t.Context(), gatewayRequest("u"))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a call before there are rules: got %v, want UNAVAILABLE, for Envoy's failure mode to decide", err)
	}
	health, err := healthv1.NewHealthClient(g.conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health before there are rules: got %v, %v, want SERVING, since Envoy Gateway may have none for long", health, err)
	}

	g.Set(t, "1", gatewayConfig(2, confv3.RateLimitUnit_YEAR))
	g.becomes(2)
	for i, want := range []rlsv3.RateLimitResponse_Code{rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT} {
		if got := g.ask("u"); got != want {
			t.Errorf("call %d of 2 a year: got %v, want %v", i+1, got, want)
		}
	}
	g.Set(t, "2", gatewayConfig(9, confv3.RateLimitUnit_YEAR))
	g.becomes(9)
	if got := g.ask("u"); got != rlsv3.RateLimitResponse_OK {
		t.Errorf("after the limit was raised: got %v, want OK", got)
	}
	g.Set(t, "3", gatewayConfig(5, confv3.RateLimitUnit_WEEK))
	g.becomes(5)

	g.Set(t, "4", gatewayConfig(1, confv3.RateLimitUnit_UNKNOWN))
	const mistake = gatewayDomain + ":11:15: descriptors[0].descriptors[0].rate_limit.unit: invalid rate limit unit 'UNKNOWN'"
	g.refused("3", mistake)
	if page := configOf(t, g.s.Admin); page.LastOK || !strings.HasPrefix(page.Error, mistake) || page.OriginVersion != "3" {
		t.Errorf("/config with a bad version: got %+v", page)
	}
	g.becomes(5)
	g.Set(t, "5", gatewayConfig(6, confv3.RateLimitUnit_HOUR))
	g.becomes(6)

	// The last policy is gone; then the control plane begins anew, and counts from 1 again.
	g.Set(t, "6")
	g.becomes(0)
	g.Restart(t)
	g.Set(t, "1", gatewayConfig(7, confv3.RateLimitUnit_HOUR))
	g.becomes(7)
}

// refused waits for a NACK by the last good version, with the mistake.
func (g *gateway) refused(version, mistake string) {
	g.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		requests := g.Requests()
		last := requests[len(requests)-1]
		if last.GetErrorDetail() != nil {
			if last.GetVersionInfo() != version || !strings.HasPrefix(last.GetErrorDetail().GetMessage(), mistake) {
				g.t.Errorf("got a NACK by version %q that says %q, want %q and %q", last.GetVersionInfo(), last.GetErrorDetail().GetMessage(), version, mistake)
			}
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("no NACK within %v", patience)
		}
		g.ask("waiting")
	}
}
