package xds

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The defaults of Options.
const (
	DefaultNodeID     = "default"
	DefaultMinBackoff = time.Second
	DefaultMaxBackoff = 30 * time.Second

	// DefaultMaxMessageBytes is that of gRPC.
	DefaultMaxMessageBytes = 4 << 20
)

// Options configures New. Server must be given.
type Options struct {
	Server       string            // "host:port" of the control plane
	NodeID       string            // how this process calls itself there; "": DefaultNodeID. All of a fleet use one name
	NodeMetadata map[string]string // more of that
	Headers      map[string]string // sent with every stream
	TLS          *TLS              // nil: plaintext

	MaxMessageBytes int // of one response, all rules in it; 0: DefaultMaxMessageBytes

	// A stream that broke is opened again after a wait that begins at MinBackoff, doubles up to MaxBackoff while there
	// is no answer, and is spread by half of it either way. 0: the defaults.
	MinBackoff, MaxBackoff time.Duration

	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: slog.Default()
}

// TLS is how the control plane is known, and how this process is known to it. The files are read for every connection,
// so that they may be renewed.
type TLS struct {
	CertFile, KeyFile string // of this process; "": it shows none
	CAFile            string // who may vouch for the control plane, and nobody else; "": the system's
	ServerName        string // in the control plane's certificate; "": the host of Server
}

// validate returns everything that is wrong, in the words of the command line.
func (o *Options) validate() error {
	var errs []error
	if o.Server == "" {
		errs = append(errs, errors.New("--xds-server: want host:port of a control plane"))
	}
	if o.MaxMessageBytes < 0 {
		errs = append(errs, fmt.Errorf("--xds-max-message-bytes: %d: want 0 or more", o.MaxMessageBytes))
	}
	if o.MinBackoff < 0 || o.MaxBackoff < o.MinBackoff {
		errs = append(errs, fmt.Errorf("xds backoff of %v to %v: want 0 or more, and no less at the end", o.MinBackoff, o.MaxBackoff))
	}
	if o.TLS != nil {
		if _, err := o.TLS.config(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// config reads the files.
func (t *TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("--xds-tls-cert and --xds-tls-key: want both or none")
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--xds-tls-cert %q, --xds-tls-key %q: %w", t.CertFile, t.KeyFile, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--xds-tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--xds-tls-ca: %s: no certificate in PEM form in it", t.CAFile)
		}
	}
	return c, nil
}
