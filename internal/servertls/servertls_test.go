package servertls_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/servertls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; long, since a loaded machine is no failure.
const patience = 20 * time.Second

func newServer(t *testing.T, o servertls.Options) *servertls.Server {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := servertls.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// greet has client greet a listener of s. It returns what the client sees, and the error of either side: TLS 1.3 tells a
// client only afterwards that it is not admitted.
func greet(t *testing.T, s *servertls.Server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			served <- err
			return
		}
		server := tls.Server(conn, s.Config())
		served <- server.Handshake()
		server.Close()
	}()
	conn, err := net.DialTimeout("tcp", ln.Addr().String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(conn, client)
	defer c.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	err = c.Handshake()
	if err == nil {
		if _, readErr := c.Read(make([]byte, 1)); !errors.Is(readErr, io.EOF) {
			err = readErr
		}
	} else {
		conn.Close() // or the server waits for more
	}
	if serverErr := <-served; serverErr != nil {
		err = errors.Join(serverErr, err)
	}
	return c.ConnectionState(), err
}

// Who is admitted: every version, authority and name, each with and without.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	ours, foreign := certtest.New(t), certtest.New(t)
	pair := ours.Issue(t, certtest.Leaf{})
	envoy := ours.Issue(t, certtest.Leaf{DNSNames: []string{"other", "envoy.test"}})
	spiffe := ours.Issue(t, certtest.Leaf{URI: "spiffe://test/envoy"})
	stranger := foreign.Issue(t, certtest.Leaf{DNSNames: []string{"envoy.test"}})
	ended := ours.Issue(t, certtest.Leaf{DNSNames: []string{"envoy.test"}, For: -time.Hour})

	open := servertls.Options{}
	strict := servertls.Options{MinVersion: tls.VersionTLS13}
	mutual := servertls.Options{ClientCAFile: ours.File}
	named := servertls.Options{ClientCAFile: ours.File, ClientSAN: "envoy.test"}
	byURI := servertls.Options{ClientCAFile: ours.File, ClientSAN: "spiffe://test/envoy"}
	tests := []struct {
		name   string
		server servertls.Options
		client *tls.Config
		shows  certtest.Pair // what the client presents; none if empty
		want   string        // part of the error; "": admitted
	}{
		{"1.3", open, &tls.Config{}, certtest.Pair{}, ""},
		{"1.2, all that Envoy speaks by default", open, &tls.Config{MaxVersion: tls.VersionTLS12}, certtest.Pair{}, ""},
		{"1.1", open, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, certtest.Pair{}, "unsupported versions"},
		{"1.2 where 1.3 is wanted", strict, &tls.Config{MaxVersion: tls.VersionTLS12}, certtest.Pair{}, "unsupported versions"},
		{"1.3 where it is wanted", strict, &tls.Config{}, certtest.Pair{}, ""},
		{"a suite that HTTP/2 forbids", open, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}}, certtest.Pair{}, "no cipher suite"},
		{"another protocol than HTTP/2", open, &tls.Config{NextProtos: []string{"h3"}}, certtest.Pair{}, "unsupported application protocols"},
		{"an authority the client does not know", open, &tls.Config{RootCAs: foreign.Pool}, certtest.Pair{}, "unknown authority"},
		{"a certificate nobody asked for", open, &tls.Config{}, stranger, ""},
		{"no certificate where one is wanted", mutual, &tls.Config{}, certtest.Pair{}, "didn't provide a certificate"},
		{"no certificate, 1.2", mutual, &tls.Config{MaxVersion: tls.VersionTLS12}, certtest.Pair{}, "didn't provide a certificate"},
		{"a certificate of our authority", mutual, &tls.Config{}, envoy, ""},
		{"a certificate of our authority, 1.2", mutual, &tls.Config{MaxVersion: tls.VersionTLS12}, envoy, ""},
		{"a certificate of another", mutual, &tls.Config{}, stranger, "unknown authority"},
		{"one that has ended", mutual, &tls.Config{}, ended, "expired"},
		{"the name", named, &tls.Config{}, envoy, ""},
		{"the name, 1.2", named, &tls.Config{MaxVersion: tls.VersionTLS12}, envoy, ""},
		{"another name", named, &tls.Config{}, spiffe, `want the name "envoy.test"`},
		{"the name, from another authority", named, &tls.Config{}, stranger, "unknown authority"},
		{"a URI as the name", byURI, &tls.Config{}, spiffe, ""},
		{"a URI as the name, not shown", byURI, &tls.Config{}, envoy, `want the name "spiffe://test/envoy"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.server.CertFile, test.server.KeyFile = pair.CertFile, pair.KeyFile
			client := test.client.Clone()
			client.ServerName = "127.0.0.1"
			if client.RootCAs == nil {
				client.RootCAs = ours.Pool
			}
			if client.NextProtos == nil {
				client.NextProtos = []string{"h2"}
			}
			if test.shows.CertFile != "" {
				shown, err := tls.LoadX509KeyPair(test.shows.CertFile, test.shows.KeyFile)
				if err != nil {
					t.Fatal(err)
				}
				// Shown even to a server that names other authorities.
				client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
			}
			state, err := greet(t, newServer(t, test.server), client)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v, want it admitted", err)
			case test.want == "" && state.NegotiatedProtocol != "h2":
				t.Errorf("got protocol %q, want h2", state.NegotiatedProtocol)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	ours := certtest.New(t)
	pair, other := ours.Issue(t, certtest.Leaf{}), ours.Issue(t, certtest.Leaf{})
	missing := filepath.Join(t.TempDir(), "missing")
	tests := []struct {
		name string
		o    servertls.Options
		want string
	}{
		{"nothing", servertls.Options{}, "want both files"},
		{"no key", servertls.Options{CertFile: pair.CertFile}, "want both files"},
		{"a missing file", servertls.Options{CertFile: missing, KeyFile: pair.KeyFile}, "no such file"},
		{"the key of another", servertls.Options{CertFile: pair.CertFile, KeyFile: other.KeyFile}, "does not match"},
		{"missing authorities", servertls.Options{CertFile: pair.CertFile, KeyFile: pair.KeyFile, ClientCAFile: missing}, "client authorities"},
		{"authorities without any", servertls.Options{CertFile: pair.CertFile, KeyFile: pair.KeyFile, ClientCAFile: pair.KeyFile}, "no certificate in PEM"},
		{"a name without authorities", servertls.Options{CertFile: pair.CertFile, KeyFile: pair.KeyFile, ClientSAN: "x"}, "want the authorities"},
		{"an old version", servertls.Options{CertFile: pair.CertFile, KeyFile: pair.KeyFile, MinVersion: tls.VersionTLS11}, "want TLS 1.2 or TLS 1.3"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, err := servertls.New(test.o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

// serial returns which certificate s shows.
func serial(t *testing.T, s *servertls.Server, ca *certtest.Authority) string {
	t.Helper()
	state, err := greet(t, s, &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	return state.PeerCertificates[0].SerialNumber.String()
}

func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v", what, patience)
		case <-tick.C:
		}
	}
}

// follow runs s until the test ends.
func follow(t *testing.T, s *servertls.Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// A certificate that is written over is shown soon; one that is wrong never is, and says so until it is right.
func TestRotation(t *testing.T) {
	t.Parallel()
	ours := certtest.New(t)
	pair := ours.Issue(t, certtest.Leaf{For: time.Hour})
	reg := prometheus.NewPedanticRegistry()
	s := newServer(t, servertls.Options{CertFile: pair.CertFile, KeyFile: pair.KeyFile, Registerer: reg})
	follow(t, s)
	first := serial(t, s, ours)
	wantExpiry(t, reg, time.Hour)

	good, err := os.ReadFile(pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pair.KeyFile, []byte("half a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a wrong pair is told", func() bool { return gauge(t, reg, "ratelimitd_tls_last_load_ok") == 0 })
	if got := serial(t, s, ours); got != first {
		t.Errorf("a wrong pair: got certificate %s, want the old %s", got, first)
	}
	if err := os.WriteFile(pair.KeyFile, good, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pair is right again", func() bool { return gauge(t, reg, "ratelimitd_tls_last_load_ok") == 1 })

	ours.IssueTo(t, pair, certtest.Leaf{For: 2 * time.Hour})
	eventually(t, "the new certificate", func() bool { return serial(t, s, ours) != first })
	wantExpiry(t, reg, 2*time.Hour)
}

// In a volume of Kubernetes the files are links through ..data, and only that is replaced.
func TestRotationOfAVolume(t *testing.T) {
	t.Parallel()
	ours := certtest.New(t)
	dir := t.TempDir()
	issue := func(version string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
			t.Fatal(err)
		}
		ours.IssueTo(t, certtest.Pair{CertFile: filepath.Join(dir, version, "tls.crt"), KeyFile: filepath.Join(dir, version, "tls.key")}, certtest.Leaf{})
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	issue("..1")
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := newServer(t, servertls.Options{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")})
	follow(t, s)
	first := serial(t, s, ours)
	issue("..2")
	eventually(t, "the new certificate", func() bool { return serial(t, s, ours) != first })
}

// When the authority of clients is replaced, who was admitted by the old one is refused, with a session to resume or not.
func TestRotationOfClientAuthority(t *testing.T) {
	t.Parallel()
	ours, next := certtest.New(t), certtest.New(t)
	pair, client := ours.Issue(t, certtest.Leaf{}), ours.Issue(t, certtest.Leaf{})
	file := filepath.Join(t.TempDir(), "clients.crt")
	replace := func(by *certtest.Authority) {
		t.Helper()
		data, err := os.ReadFile(by.File)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace(ours)
	s := newServer(t, servertls.Options{CertFile: pair.CertFile, KeyFile: pair.KeyFile, ClientCAFile: file})
	follow(t, s)
	shown, err := tls.LoadX509KeyPair(client.CertFile, client.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{
		RootCAs: ours.Pool, ServerName: "127.0.0.1", NextProtos: []string{"h2"}, ClientSessionCache: tls.NewLRUClientSessionCache(8),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil },
	}
	if _, err := greet(t, s, config); err != nil {
		t.Fatal(err)
	}
	replace(next)
	eventually(t, "the old authority is refused", func() bool {
		_, err := greet(t, s, config)
		return err != nil && strings.Contains(err.Error(), "unknown authority")
	})
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func wantExpiry(t *testing.T, reg *prometheus.Registry, in time.Duration) {
	t.Helper()
	left := time.Until(time.Unix(int64(gauge(t, reg, "ratelimitd_tls_certificate_expiry_timestamp_seconds")), 0))
	if left > in || left < in-time.Minute {
		t.Errorf("the certificate ends in %v, want %v", left, in)
	}
}
