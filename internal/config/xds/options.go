package xds

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/clienttls"
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
	TLS          *clienttls.Files  // read for every stream, so that they may be renewed; nil: plaintext

	MaxMessageBytes int // of one response, all rules in it; 0: DefaultMaxMessageBytes

	// A stream that broke is opened again after a wait that begins at MinBackoff, doubles up to MaxBackoff while there
	// is no answer, and is spread by half of it either way. 0: the defaults.
	MinBackoff, MaxBackoff time.Duration

	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: slog.Default()
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
		if _, err := o.config(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// config reads the files anew.
func (o *Options) config() (*tls.Config, error) {
	return o.TLS.Config(clienttls.Names{CA: "--xds-tls-ca", Cert: "--xds-tls-cert", Key: "--xds-tls-key"})
}
