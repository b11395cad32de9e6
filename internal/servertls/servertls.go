package servertls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Options says which certificate is shown, and to whom. CertFile and KeyFile must be given.
type Options struct {
	CertFile string // PEM: the certificate, then those that lead to its authority
	KeyFile  string // PEM: its private key

	// ClientCAFile holds PEM certificates of the authorities of callers: only who shows a certificate of one of them is
	// admitted. The system's authorities are not among them. "" admits everybody.
	ClientCAFile string
	// ClientSAN is a DNS name or a URI that a caller's certificate must have, exactly so. "" means any. It needs a
	// ClientCAFile.
	ClientSAN string

	MinVersion uint16 // tls.VersionTLS12 or tls.VersionTLS13; 0 means tls.VersionTLS12: Envoy speaks no later one unless told to

	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: slog.Default()
}

// Server is what a port needs for TLS. Made by New; safe for concurrent use.
type Server struct {
	o       Options
	log     *slog.Logger
	current atomic.Pointer[tls.Config]
	metrics *metrics
	seen    [sumSize]byte // of the files, as they were last read; New's and then Run's
}

// New reads the files and returns a server that shows them. The error says which file is wrong, or that two do not belong
// together.
func New(o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MinVersion == 0 {
		o.MinVersion = tls.VersionTLS12
	}
	switch {
	case o.CertFile == "" || o.KeyFile == "":
		return nil, errors.New("certificate and key: want both files")
	case o.ClientSAN != "" && o.ClientCAFile == "":
		return nil, errors.New("name of a client: want the authorities of clients as well")
	case o.MinVersion != tls.VersionTLS12 && o.MinVersion != tls.VersionTLS13:
		return nil, fmt.Errorf("version %s: want TLS 1.2 or TLS 1.3", tls.VersionName(o.MinVersion))
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, log: o.Logger, metrics: m}
	s.seen = s.sum()
	config, err := s.read()
	if err != nil {
		return nil, err
	}
	s.use(config)
	return s, nil
}

// Config returns the configuration of a listener. Every handshake uses what the files held when they were last good.
func (s *Server) Config() *tls.Config {
	c := s.current.Load().Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load(), nil }
	return c
}

// suites are those of TLS 1.2 that HTTP/2 permits (RFC 9113, appendix A); 1.3 has no others.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// read makes a configuration of the files as they are.
func (s *Server) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(s.o.CertFile, s.o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %s and key %s: %w", s.o.CertFile, s.o.KeyFile, err)
	}
	c := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   s.o.MinVersion,
		CipherSuites: suites,
		NextProtos:   []string{"h2"},
	}
	if s.o.ClientCAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(s.o.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("client authorities: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("client authorities: %s: no certificate in PEM", s.o.ClientCAFile)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.SessionTicketsDisabled = true // a resumed session would outlive the authority it was admitted by
	if s.o.ClientSAN != "" {
		c.VerifyConnection = s.named
	}
	return c, nil
}

// named refuses a caller whose certificate has not the name.
func (s *Server) named(cs tls.ConnectionState) error {
	leaf := cs.PeerCertificates[0] // there is one: it was verified
	if slices.Contains(leaf.DNSNames, s.o.ClientSAN) {
		return nil
	}
	for _, uri := range leaf.URIs {
		if uri.String() == s.o.ClientSAN {
			return nil
		}
	}
	return fmt.Errorf("client certificate: want the name %q", s.o.ClientSAN)
}

// use shows config from the next handshake on.
func (s *Server) use(config *tls.Config) {
	s.current.Store(config)
	s.metrics.expiry.Set(float64(config.Certificates[0].Leaf.NotAfter.Unix()))
	s.metrics.ok.Set(1)
}

// Run follows the files until ctx ends. What is wrong changes nothing: the last good ones stay, and the log says why.
func (s *Server) Run(ctx context.Context) { s.follow(ctx, s.reload) }

// reload uses the files if they have changed and are good.
func (s *Server) reload() {
	sum := s.sum()
	if sum == s.seen {
		return
	}
	s.seen = sum
	config, err := s.read()
	if err != nil {
		s.metrics.ok.Set(0)
		s.log.Error("certificate has changed and is wrong, the last good one stays", "error", err)
		return
	}
	s.use(config)
	leaf := config.Certificates[0].Leaf
	s.log.Info("certificate read again", "file", s.o.CertFile, "serial", leaf.SerialNumber.Text(16), "not_after", leaf.NotAfter)
}
