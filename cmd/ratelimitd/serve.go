package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/servertls"
	"github.com/ratelimitd/ratelimitd/internal/transport"
)

// serveFlags are the flags of serve that do not go into app.Options as they are.
type serveFlags struct {
	adminTLS      servertls.Options
	xds           xdsFlags
	referenceEnv  string
	reference     reference
	profile       string
	redis         redisFlags
	keySecretFile string
	headers       []string
	retryJitter   string
	tls           servertls.Options
	tlsMin        string
	logFormat     string
	logLevel      slog.Level
}

func serveCommand() *cobra.Command {
	var f serveFlags
	var o app.Options
	cmd := &cobra.Command{
		Use:   "serve (--rules DIR|FILE | --xds-server ADDRESS | --rules-from-redis)",
		Short: "Serve decisions",
		Long: `Serve decisions to Envoy and everything else that speaks its rate limit service.

Three ports are opened:
  gRPC   Envoy's RateLimitService v3, and health (for "" and "ratelimit")
  HTTP   /json (the same service as JSON), /healthcheck and /readyz
  admin  /metrics, /rlconfig, /config, /debug/pprof/ and the service behind the
         commands rules, override, grant, audit and nodes, on loopback

Without --redis-url, buckets are kept in the memory of this process: right for one
process and for trying things. With it, all processes on one Redis share their
buckets. Redis need not be there at the start: until it is, each limit answers as
its on_backend_failure says.

The rules come from files (--rules), by xDS from a control plane (--xds-server), or from
Redis, where people publish them (--rules-from-redis), and are followed: a change is
served within two seconds, and SIGHUP has files read at once. If they are wrong, the
last good ones stay, and the log says why.

SIGTERM and SIGINT drain: health says "not serving", calls are answered for
--drain-delay more, so that every proxy notices, then connections are ended and the
process exits with 0. A second signal ends it at once.

Traces are sent if the environment asks for them by OpenTelemetry's own variables,
OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER=otlp.`,
		Example: `  # Count in memory
  ratelimitd serve --rules examples/rules

  # Share buckets through Redis; the URL, which may hold a password, comes from the environment or from a file
  RATELIMITD_REDIS_URL=redis://127.0.0.1:6379 ratelimitd serve --rules examples/rules
  ratelimitd serve --rules examples/rules --redis-url-file /run/secrets/redis-url

  # Take the rules from Envoy Gateway
  ratelimitd serve --xds-server envoy-gateway:18001 --xds-node-id envoy-ratelimit \
    --xds-tls-cert /certs/tls.crt --xds-tls-key /certs/tls.key --xds-tls-ca /certs/ca.crt

  # Try new rules without refusing anything
  ratelimitd serve --rules examples/rules --shadow`,
		Args: cobra.NoArgs,
		RunE: runsWith(
			func(cmd *cobra.Command) []error { return f.reference.complete(cmd, f.referenceEnv, os.Environ()) },
			func(cmd *cobra.Command, _ []string) error { return serve(cmd, &o, &f) },
		),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Rules, "rules", "", "the rules: a `path` of a file, or of a directory of *.yaml, *.yml and *.json")
	flags.BoolVar(&o.RulesFromRedis, "rules-from-redis", false, "take the rules that people publish in the Redis of --redis-url instead; see ratelimitd rules")
	f.xds.addTo(flags)
	choiceVar(flags, &f.referenceEnv, "reference-environment", "read the variables of the reference service (envoyproxy/ratelimit): auto does if one of them says where the rules are", "auto", "on", "off")
	flags.BoolVar(&o.AllowEmptyRules, "allow-empty-rules", false, "let rules without any rule become current, which lets everything pass")
	flags.BoolVar(&o.StartWithoutRules, "start-without-rules", false, "say \"serving\" before there are rules; until then calls are answered with an error")
	flags.StringVar(&o.StateDir, "state-dir", "", "keep the last good rules in this `directory`, for a start that finds none; without Redis the overrides and the audit log too")
	choiceVar(flags, &f.profile, "default-profile", "whose answers files give that name no profile: ours, or the reference service's", "native", "envoy")
	flags.StringVar(&o.GRPCAddr, "grpc-addr", app.DefaultGRPCAddr, "`address` of the gRPC port; unix:///path for a socket")
	flags.StringVar(&f.tls.CertFile, "grpc-tls-cert", "", "PEM `file` of the gRPC port's certificate, with --grpc-tls-key; both are read again when they change")
	flags.StringVar(&f.tls.KeyFile, "grpc-tls-key", "", "PEM `file` of its key")
	flags.StringVar(&f.tls.ClientCAFile, "grpc-tls-client-ca", "", "PEM `file` of authorities: admit only who shows a certificate of one of them")
	flags.StringVar(&f.tls.ClientSAN, "grpc-tls-client-san", "", "DNS `name` or URI that a client's certificate must have as well")
	choiceVar(flags, &f.tlsMin, "grpc-tls-min", "least version of TLS; Envoy speaks 1.2 to a service unless it is told otherwise", "1.2", "1.3")
	flags.DurationVar(&o.MaxConnectionAge, "max-connection-age", 30*time.Minute, "how old a gRPC connection may become, so that callers spread over new processes")
	flags.DurationVar(&o.MaxConnectionAgeGrace, "max-connection-age-grace", 10*time.Second, "how long its calls in flight may take after that")
	flags.StringVar(&o.HTTPAddr, "http-addr", app.DefaultHTTPAddr, "`address` of the HTTP port")
	flags.StringVar(&o.AdminAddr, "admin-addr", app.DefaultAdminAddr, "`address` of the admin port: loopback, unless callers must show a token")
	flags.StringVar(&o.AdminTokenFile, "admin-token-file", "", "the `file` that holds the token that editors show to the admin port")
	flags.StringVar(&o.AdminViewerTokenFile, "admin-viewer-token-file", "", "the `file` that holds the token of viewers")
	flags.StringVar(&f.adminTLS.CertFile, "admin-tls-cert", "", "PEM `file` of the admin port's certificate, with --admin-tls-key; both are read again when they change")
	flags.StringVar(&f.adminTLS.KeyFile, "admin-tls-key", "", "PEM `file` of its key")
	flags.StringVar(&f.adminTLS.ClientCAFile, "admin-tls-client-ca", "", "PEM `file` of authorities: admit only who shows a certificate of one of them, as a viewer")
	flags.StringSliceVar(&o.AdminEditors, "admin-editor", nil, "or as an editor, if it has one of these `names` (DNS names or URIs)")
	flags.StringSliceVar(&o.AdminHosts, "admin-host", nil, "`names` by which the admin port may be called, besides addresses and localhost")
	flags.BoolVar(&o.AdminRemote, "admin-remote", false, "without a token, let other machines read the pages of the admin port, and those alone")
	f.redis.addTo(cmd, "share buckets in")
	flags.DurationVar(&o.RedisTimeout, "redis-timeout", app.DefaultRedisTimeout, "how long a decision waits for Redis")
	flags.StringVar(&f.keySecretFile, "key-secret-file", "", "derive bucket keys with the bytes of this `file`, 16 or more, the same for all processes; without it they share one that is kept in Redis")
	flags.IntVar(&o.Nodes, "nodes", 0, "how many processes share the limits, where each enforces its part (0: learnt from Redis, or 1 without it)")
	flags.IntVar(&o.MaxBuckets, "max-buckets", 0, "most buckets in memory (0: 2,000,000; with Redis, for when it is away, 100,000)")
	flags.StringVar(&o.KeySpace, "key-space", "", "a `name` that keeps buckets apart from those of other deployments on the same Redis")
	flags.BoolVar(&o.Shadow, "shadow", false, "decide and count, but refuse nothing")
	flags.BoolVar(&o.Quota, "quota", false, "in profile envoy, answer as if every limit had quota_mode: true")
	flags.Uint32Var(&o.OverrideMax, "override-max", 0, "largest requests_per_unit that a request's own limit may ask for (0: any)")
	flags.BoolVar(&o.ResponseMetadata, "response-metadata", false, "answer with dynamic metadata: the deciding rule, what remains, where it was paid")
	flags.StringSliceVar(&f.headers, "headers", []string{"ietf"}, "response headers, comma-separated: ietf (RateLimit, RateLimit-Policy), envoy or github (X-RateLimit-*), reference (as the reference service, profile envoy only), none")
	choiceVar(flags, &f.retryJitter, "retry-jitter", "spread Retry-After, so that clients do not return all at once; 0 turns it off", "1", "0")
	flags.BoolVar(&o.Problem, "problem", true, "refuse with a short problem+json body")
	flags.BoolVar(&o.Reflection, "reflection", false, "serve gRPC reflection")
	flags.DurationVar(&o.DrainDelay, "drain-delay", app.DefaultDrainDelay, "how long calls are still answered after health said \"not serving\": longer than the proxies' health interval × threshold")
	flags.DurationVar(&o.StopTimeout, "stop-timeout", app.DefaultStopTimeout, "how long calls in flight may take to end after that")
	choiceVar(flags, &f.logFormat, "log-format", "how log lines are written", "json", "text")
	flags.TextVar(&f.logLevel, "log-level", slog.LevelInfo, "least `level` that is logged: debug, info, warn or error")
	return cmd
}

func serve(cmd *cobra.Command, o *app.Options, f *serveFlags) error {
	lines := &slog.HandlerOptions{Level: f.logLevel}
	if f.reference.env != nil && f.logFormat == "json" {
		lines.ReplaceAttr = logNames
	}
	handler := slog.Handler(slog.NewJSONHandler(cmd.ErrOrStderr(), lines))
	if f.logFormat == "text" {
		handler = slog.NewTextHandler(cmd.ErrOrStderr(), lines)
	}
	o.Logger = slog.New(handler)
	slog.SetDefault(o.Logger) // what libraries say through the log package comes out the same way

	for _, name := range strangers(cmd.Root(), os.Environ()) {
		o.Logger.Warn("environment variable sets nothing", "name", name)
	}

	o.Build = build()
	o.DefaultProfile = profile(f.profile)
	o.RetryJitter = f.retryJitter == "1"
	var err error
	if o.XDS, err = f.xds.options(); err != nil {
		return err
	}
	if o.Headers, err = headers(f.headers); err != nil {
		return usagef("--headers: %w", err)
	}
	f.reference.apply(o)
	if err = o.WantOrigin(); err != nil {
		return &exitError{exitUsage, err}
	}
	if o.RedisURL, err = f.redis.read(cmd, o.Logger); err != nil {
		return err
	}
	if o.AdminTLS, err = f.adminServer(); err != nil {
		return err
	}
	if o.GRPCTLS, err = f.grpcTLS(); err != nil {
		return err
	}
	o.Redis = f.redis.conn
	if o.KeySecret, err = keySecret(f.keySecretFile); err != nil {
		return err
	}
	if o.Tracing, err = tracing(os.LookupEnv); err != nil {
		return &exitError{exitUsage, err}
	}
	if o.Tracing, err = f.reference.tracing(o.Tracing); err != nil {
		return err
	}
	f.reference.tell(o.Logger, o)
	o.MemoryLimit = limitMemory(o.Logger)

	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	ends := make(chan os.Signal, 2)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(ends)
	go func() { // lives as long as the process
		<-ends
		cancel()
		<-ends
		o.Logger.Warn("ended at once by a second signal")
		os.Exit(exitFailure)
	}()

	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	o.Reload = hangups
	err = app.Run(ctx, *o)
	if wrong, ok := errors.AsType[*app.OptionsError](err); ok {
		return &exitError{exitUsage, wrong}
	}
	return err
}

// grpcTLS returns the options of TLS, nil if there are none.
func (f *serveFlags) grpcTLS() (*servertls.Options, error) {
	o := f.tls
	switch {
	case o == servertls.Options{}:
		return nil, nil
	case o.CertFile == "" || o.KeyFile == "":
		return nil, usagef("--grpc-tls-cert and --grpc-tls-key: want both")
	case o.ClientSAN != "" && o.ClientCAFile == "":
		return nil, usagef("--grpc-tls-client-san: want --grpc-tls-client-ca as well")
	}
	if f.tlsMin == "1.3" {
		o.MinVersion = tls.VersionTLS13
	}
	return &o, nil
}

func (f *serveFlags) adminServer() (*servertls.Options, error) {
	o := f.adminTLS
	switch {
	case o == servertls.Options{}:
		return nil, nil
	case o.CertFile == "" || o.KeyFile == "":
		return nil, usagef("--admin-tls-cert and --admin-tls-key: want both")
	}
	return &o, nil
}

// keySecret returns the bytes of a file as they are, none without a file.
func keySecret(file string) (app.Secret, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	switch {
	case err != nil:
		return "", usagef("--key-secret-file: %w", err)
	case len(data) == 0:
		return "", usagef("--key-secret-file: %s is empty", file)
	}
	return app.Secret(data), nil
}

// headers translates the words of --headers.
func headers(words []string) (transport.Headers, error) {
	var h transport.Headers
	for _, w := range words {
		legacy := transport.LegacyOff
		switch w {
		case "none":
		case "ietf":
			h.IETF = true
		case "reference":
			h.Reference = true
		case "envoy":
			legacy = transport.LegacyEnvoy
		case "github":
			legacy = transport.LegacyGitHub
		default:
			return h, usagef("%q: want ietf, envoy, github, reference or none", w)
		}
		switch {
		case w == "none" && len(words) > 1:
			return h, usagef("none: want no other beside it")
		case legacy != transport.LegacyOff && h.Legacy != transport.LegacyOff && h.Legacy != legacy:
			return h, usagef("envoy and github mean different things by the same names: want one of them")
		case legacy != transport.LegacyOff:
			h.Legacy = legacy
		}
	}
	return h, nil
}
