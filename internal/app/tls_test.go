package app_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
	"github.com/ratelimitd/ratelimitd/internal/servertls"
)

// dialTLS returns a client of a's gRPC port.
func dialTLS(t *testing.T, a *app.App, config *tls.Config) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(a.Addr("grpc").String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Calls over TLS are answered; the certificate that a file holds now is shown to who comes now, and who has no
// certificate, where one is wanted, has no answer.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours := certtest.New(t)
	pair, client := ours.Issue(t, certtest.Leaf{}), ours.Issue(t, certtest.Leaf{DNSNames: []string{"envoy.test"}})
	shown, err := tls.LoadX509KeyPair(client.CertFile, client.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	o, _ := options(t, rules)
	o.GRPCTLS = &servertls.Options{CertFile: pair.CertFile, KeyFile: pair.KeyFile, ClientCAFile: ours.File, ClientSAN: "envoy.test"}
	a := start(t, o)
	// As Envoy greets by default.
	envoy := &tls.Config{RootCAs: ours.Pool, Certificates: []tls.Certificate{shown}, MaxVersion: tls.VersionTLS12}
	wantCodes(t, dialTLS(t, a, envoy), "api", "", ok, ok, over)

	for name, config := range map[string]*tls.Config{"no certificate": {RootCAs: ours.Pool}, "plain text": nil} {
		creds := insecure.NewCredentials()
		if config != nil {
			creds = credentials.NewTLS(config)
		}
		conn, err := grpc.NewClient(a.Addr("grpc").String(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		if err := try(t, conn); err == nil {
			t.Errorf("%s: got an answer", name)
		}
		conn.Close()
	}

	serial := func() string {
		conn, err := tls.Dial("tcp", a.Addr("grpc").String(), &tls.Config{
			RootCAs: ours.Pool, Certificates: []tls.Certificate{shown}, NextProtos: []string{"h2"},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	ours.IssueTo(t, pair, certtest.Leaf{})
	eventually(t, "the new certificate is shown", func() bool { return serial() != first })
	if _, page := get(t, a.Addr("admin"), "/metrics"); !strings.Contains(page, "ratelimitd_tls_certificate_expiry_timestamp_seconds 1.") {
		t.Error("/metrics does not say when the certificate ends")
	}
}

// try asks once and returns the error of the call.
func try(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := healthpb.NewHealthClient(conn).Check(ctx, new(healthpb.HealthCheckRequest))
	return err
}

// A wrong certificate ends the start.
func TestTLSIsReadAtTheStart(t *testing.T) {
	t.Parallel()
	o, _ := options(t, rules)
	o.GRPCTLS = &servertls.Options{CertFile: o.Rules, KeyFile: o.Rules}
	_, err := app.New(o)
	if _, ok := errors.AsType[*app.OptionsError](err); !ok || !strings.Contains(err.Error(), o.Rules) {
		t.Errorf("got %v, want an *OptionsError that names the file", err)
	}
}

// So does whatever is wrong with the way to a control plane.
func TestXDSOptionsAreCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	o, _ := options(t, "")
	o.Rules, o.XDS = "", xds.Options{Server: "127.0.0.1:1", MaxMessageBytes: -1}
	_, err := app.New(o)
	if _, ok := errors.AsType[*app.OptionsError](err); !ok || !strings.Contains(err.Error(), "--xds-max-message-bytes") {
		t.Errorf("got %v, want an *OptionsError that names the flag", err)
	}
}

// The gRPC port may be a socket. One that a killed process has left is replaced; one that is answered is not.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	orphan, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	orphan.SetUnlinkOnClose(false)
	orphan.Close()

	o, _ := options(t, rules)
	o.GRPCAddr = "unix://" + path
	a := start(t, o)
	conn, err := grpc.NewClient(o.GRPCAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wantCodes(t, conn, "api", "", ok, ok, over)

	second, err := app.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "--grpc-addr") {
		t.Errorf("second process on the socket: got %v, want an error that names the flag", err)
	}
	wantCodes(t, conn, "api", "", over)
	conn.Close()
	stop(t, a)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}
