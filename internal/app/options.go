package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/servertls"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/transport"
)

// The defaults of Options.
const (
	DefaultGRPCAddr     = ":8081"
	DefaultHTTPAddr     = ":8080"
	DefaultAdminAddr    = "127.0.0.1:8082"
	DefaultRedisTimeout = 5 * time.Millisecond

	// DefaultDrainDelay is a health interval of 5 s times an unhealthy threshold of 2, the second within which Envoy
	// merges updates (update_merge_window), and a second to spare.
	DefaultDrainDelay = 12 * time.Second

	// DefaultStopTimeout bounds what comes after the delay; together they stay under the 30 s of Kubernetes.
	DefaultStopTimeout = 10 * time.Second
)

// minToken is the least length of a token of the admin port.
const minToken = 16

// Options describes a process to New. Rules and the addresses must be given; port 0 is any free one.
type Options struct {
	Build Build

	// Where the rules come from: one of these.
	Rules          string                  // a file, or a directory of rules
	Reference      *config.ReferenceLayout // files in the reference service's layout
	RulesFromRedis bool                    // those that people publish in the Redis of RedisURL
	XDS            xds.Options             // a control plane, if it has a Server; Registerer and Logger are those of the process

	DefaultProfile    rule.Profile // of files that name none
	MergeDomains      bool         // in profile envoy: whether several files may add to one domain
	AllowEmptyRules   bool         // whether a version without any rule may become current
	StartWithoutRules bool         // say "serving" before there are rules; calls are answered with an error until there are
	StateDir          string       // keeps the last good rules for the next start; "": nowhere

	GRPCAddr    string // host:port, or unix:///path of a socket
	HTTPAddr    string
	AdminAddr   string // loopback, unless AdminRemote
	AdminRemote bool   // the pages of the admin port may be read from other machines without a token

	AdminTokenFile       string             // holds the token that editors show to the admin port; "": none
	AdminViewerTokenFile string             // and that of viewers
	AdminTLS             *servertls.Options // of the admin port, less Registerer and Logger; nil: plain text
	AdminEditors         []string           // where it admits certificates only, and asks for no token: names in those of editors; all others are viewers
	AdminHosts           []string           // names by which the admin port may be called, besides addresses and localhost
	Reconcile            time.Duration      // how often to look for changes that nobody told of; 0: 30 s

	GRPCTLS               *servertls.Options // of the gRPC port, less Registerer and Logger; nil: plain text
	MaxConnectionAge      time.Duration      // of gRPC connections, ±10 %; 0: 30 minutes
	MaxConnectionAgeGrace time.Duration      // for calls in flight when that has passed; 0: 10 seconds

	RedisURL     Secret            // "": buckets live in this process
	Redis        redisconn.Options // how it is reached, but for the URL
	RedisTimeout time.Duration     // 0: DefaultRedisTimeout
	MaxBuckets   int               // in memory; 0: memstore's default, or with Redis DefaultFallbackBuckets
	MemoryLimit  uint64            // bytes of memory under which garbage may wait; 0: as Go's GOGC has it
	Nodes        int               // processes that share the limits; 0: learnt from Redis, or 1 without it
	KeySpace     string            // keeps buckets apart from those of other deployments on the same Redis, which have another; "": none
	KeySecret    Secret            // what bucket keys are derived with, 16 bytes or more; "": shared in Redis, or random without it

	Shadow           bool   // decide and count, refuse nothing
	Quota            bool   // in profile envoy, every limit is one of quota_mode
	OverrideMax      uint32 // largest requests_per_unit a request's own limit may ask for; 0: any
	Reflection       bool
	ResponseMetadata bool
	RetryJitter      bool
	Problem          bool // refuse with a problem+json body
	Headers          transport.Headers

	DrainDelay  time.Duration // between saying "not serving" and ending connections; 0: none
	StopTimeout time.Duration // for everything after it; 0: DefaultStopTimeout

	Tracing Tracing
	Logger  *slog.Logger     // nil: slog.Default()
	Reload  <-chan os.Signal // Run reads the rules again at every value; nil: never
}

// OptionsError is what New returns if what it was given is wrong, be the rules right and the ports free or not.
type OptionsError struct{ Err error }

// Error says what is wrong in the words of the command line, an option a line.
func (e *OptionsError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *OptionsError) Unwrap() error { return e.Err }

// validate returns everything that is wrong, in the words of the command line.
func (o *Options) validate() error {
	var errs []error
	if err := o.WantOrigin(); err != nil {
		errs = append(errs, err)
	}
	if o.KeySecret != "" {
		if _, err := store.NewKeyer([]byte(o.KeySecret)); err != nil {
			errs = append(errs, fmt.Errorf("--key-secret-file: %w", err))
		}
	}
	for _, d := range []struct {
		flag string
		d    time.Duration
	}{{"--redis-timeout", o.RedisTimeout}, {"--drain-delay", o.DrainDelay}, {"--stop-timeout", o.StopTimeout},
		{"--max-connection-age", o.MaxConnectionAge}, {"--max-connection-age-grace", o.MaxConnectionAgeGrace}} {
		if d.d < 0 {
			errs = append(errs, fmt.Errorf("%s: %v: want 0 or more", d.flag, d.d))
		}
	}
	if o.MaxBuckets < 0 {
		errs = append(errs, fmt.Errorf("--max-buckets: %d: want 0 or more", o.MaxBuckets))
	}
	if o.Nodes < 0 {
		errs = append(errs, fmt.Errorf("--nodes: %d: want 0 or more", o.Nodes))
	}
	for _, a := range []struct {
		flag, addr string
		socket     bool // whether it may be one
	}{{"--grpc-addr", o.GRPCAddr, true}, {"--http-addr", o.HTTPAddr, true}, {"--admin-addr", o.AdminAddr, false}} {
		if a.socket && strings.HasPrefix(a.addr, socketPrefix) {
			continue
		}
		if err := checkAddr(a.addr); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a.flag, err))
		}
	}
	if host, _, err := net.SplitHostPort(o.AdminAddr); err == nil && !o.AdminRemote && !o.authenticates() && !loopback(host) {
		errs = append(errs, fmt.Errorf("--admin-addr: %q can be reached from other machines and asks for no password: "+
			"want loopback, --admin-token-file, --admin-tls-client-ca, or --admin-remote for its pages alone", o.AdminAddr))
	}
	if o.RulesFromRedis && o.RedisURL == "" {
		errs = append(errs, errors.New("--rules-from-redis: want --redis-url"))
	}
	for _, file := range []struct{ flag, path string }{
		{"--admin-token-file", o.AdminTokenFile}, {"--admin-viewer-token-file", o.AdminViewerTokenFile},
	} {
		if file.path == "" {
			continue
		}
		if data, err := os.ReadFile(file.path); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file.flag, err))
		} else if len(strings.TrimSpace(string(data))) < minToken {
			errs = append(errs, fmt.Errorf("%s: %s: want a token of %d characters or more", file.flag, file.path, minToken))
		}
	}
	return errors.Join(errs...)
}

// checkAddr refuses what is no address of a port, free or not.
func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	_, err = net.LookupPort("tcp", port)
	return err
}

// authenticates reports whether callers of the admin port must show who they are.
func (o *Options) authenticates() bool {
	return o.AdminTokenFile != "" || o.AdminViewerTokenFile != "" || o.certificates()
}

// certificates reports whether the admin port admits nobody without a certificate.
func (o *Options) certificates() bool { return o.AdminTLS != nil && o.AdminTLS.ClientCAFile != "" }

// loopback reports whether a host can be reached from this machine only.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
