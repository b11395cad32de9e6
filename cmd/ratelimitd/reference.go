package main

import (
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

// referenceName is what the program must be called to stand in for the reference service (envoyproxy/ratelimit): then
// it is configured by that one's environment alone, and takes no argument for one, as that.
const referenceName = "ratelimit"

// asCalled returns the arguments of a program that was started with args, its name the first.
func asCalled(args []string) []string {
	if filepath.Base(args[0]) == referenceName {
		return []string{"serve", "--reference-environment=on"}
	}
	return args[1:]
}

// reference is what the reference's variables say that no flag can. The zero value says nothing.
type reference struct {
	env    *referenceEnv           // nil: they are not read
	layout *config.ReferenceLayout // nil: the rules come from elsewhere
}

// origins are the variables that say where the reference's rules are. Nobody else has one of them, while HOST, PORT,
// LOG_LEVEL or REDIS_URL are everybody's.
var origins = []string{"CONFIG_TYPE", "RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY"}

// complete gives the flags of cmd that neither the command line nor our own environment has set what the reference's
// variables say: at all if mode is on, never if it is off, else if one of them says where the rules are.
func (r *reference) complete(cmd *cobra.Command, mode string, environ []string) []error {
	env := readReference(environ)
	wanted := mode == "on" || mode == "auto" && slices.ContainsFunc(origins, env.given)
	if !wanted {
		return nil
	}
	r.env = env
	c := completion{env, cmd.Flags()}
	c.set("default-profile", "envoy", "CONFIG_TYPE")
	c.ports()
	c.logs()
	if !c.changed("rules", "xds-server", "rules-from-redis") {
		r.layout = c.rules()
	}
	c.limits()
	c.redis()
	return env.errs
}

// A completion sets flags.
type completion struct {
	*referenceEnv
	flags *pflag.FlagSet
}

// changed reports whether somebody has set one of the flags already.
func (c completion) changed(flags ...string) bool {
	return slices.ContainsFunc(flags, func(name string) bool {
		f := c.flags.Lookup(name)
		return f != nil && f.Changed
	})
}

// set gives a flag a value that the variable says, unless somebody who is listened to more has set it.
func (c completion) set(flag, value, variable string) {
	f := c.flags.Lookup(flag)
	if f.Changed {
		return
	}
	if err := f.Value.Set(value); err != nil {
		c.wrong(variable, "%w", err) // a value may be a secret
		return
	}
	f.Changed = true
	setOrigin(f, originReference)
}

// pass sets a flag to the text of a variable, if that is set to something.
func (c completion) pass(flag, variable string) {
	if c.given(variable) {
		c.set(flag, c.text(variable), variable)
	}
}

// passTrue sets a flag if a variable is true.
func (c completion) passTrue(flag, variable string) {
	if c.bool(variable) {
		c.set(flag, "true", variable)
	}
}

// address joins a host, an IPv6 literal with or without brackets included, and a port.
func (c completion) address(host, port string) string {
	return net.JoinHostPort(strings.Trim(c.text(host), "[]"), c.text(port))
}

func (c completion) ports() {
	c.set("http-addr", c.address("HOST", "PORT"), "PORT")
	if c.given("GRPC_UDS") {
		c.set("grpc-addr", "unix://"+c.text("GRPC_UDS"), "GRPC_UDS")
	}
	c.set("grpc-addr", c.address("GRPC_HOST", "GRPC_PORT"), "GRPC_PORT")
	if c.given("DEBUG_HOST") {
		c.set("admin-addr", c.address("DEBUG_HOST", "DEBUG_PORT"), "DEBUG_PORT")
		c.set("admin-remote", "true", "DEBUG_HOST")
	}
	// What the reference opens to everybody unless told otherwise shows more here: it stays on this machine.
	c.set("admin-addr", net.JoinHostPort("127.0.0.1", c.text("DEBUG_PORT")), "DEBUG_PORT")

	c.pass("max-connection-age", "GRPC_MAX_CONNECTION_AGE")
	c.pass("max-connection-age-grace", "GRPC_MAX_CONNECTION_AGE_GRACE")
	if !c.bool("GRPC_SERVER_USE_TLS") || c.changed("grpc-tls-cert", "grpc-tls-key") {
		return
	}
	for _, name := range []string{"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"} {
		if !c.given(name) {
			c.wrong(name, "want a file, since GRPC_SERVER_USE_TLS is true")
		}
	}
	if c.given("GRPC_CLIENT_TLS_SAN") && !c.given("GRPC_CLIENT_TLS_CACERT") {
		c.wrong("GRPC_CLIENT_TLS_SAN", "want GRPC_CLIENT_TLS_CACERT as well")
	}
	c.pass("grpc-tls-cert", "GRPC_SERVER_TLS_CERT")
	c.pass("grpc-tls-key", "GRPC_SERVER_TLS_KEY")
	c.pass("grpc-tls-client-ca", "GRPC_CLIENT_TLS_CACERT")
	c.pass("grpc-tls-client-san", "GRPC_CLIENT_TLS_SAN")
}

// levels are the reference's names of them, and ours.
var levels = map[string]string{
	"panic": "error", "fatal": "error", "error": "error", "warn": "warn", "warning": "warn", "info": "info", "debug": "debug", "trace": "debug",
}

func (c completion) logs() {
	if name := c.text("LOG_LEVEL"); name != "" {
		if level, ok := levels[strings.ToLower(name)]; ok {
			c.set("log-level", level, "LOG_LEVEL")
		} else {
			c.wrong("LOG_LEVEL", "%q: want panic, fatal, error, warn, info, debug or trace", name)
		}
	}
	format := "text"
	if c.text("LOG_FORMAT") == "json" {
		format = "json"
	}
	c.set("log-format", format, "LOG_FORMAT")
}

// rules says where the rules are: by a layout of files that it returns, or by flags.
func (c completion) rules() *config.ReferenceLayout {
	c.set("allow-empty-rules", "true", "CONFIG_TYPE") // as the reference, which lets everything pass then
	if !c.bool("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED") {
		c.passTrue("start-without-rules", "FORCE_START_WITHOUT_INITIAL_CONFIG")
	}
	switch c.text("CONFIG_TYPE") {
	case "FILE":
		return &config.ReferenceLayout{
			Root: c.text("RUNTIME_ROOT"), Subdirectory: c.text("RUNTIME_SUBDIRECTORY"), AppDirectory: c.text("RUNTIME_APPDIRECTORY"),
			WatchRoot: c.bool("RUNTIME_WATCH_ROOT"), IgnoreDotFiles: c.bool("RUNTIME_IGNOREDOTFILES"),
		}
	case "GRPC_XDS_SOTW":
		c.xds()
	default:
		c.wrong("CONFIG_TYPE", "%q: want FILE or GRPC_XDS_SOTW", c.text("CONFIG_TYPE"))
	}
	return nil
}

func (c completion) xds() {
	c.set("xds-server", c.text("CONFIG_GRPC_XDS_SERVER_URL"), "CONFIG_GRPC_XDS_SERVER_URL")
	c.set("xds-node-id", c.text("CONFIG_GRPC_XDS_NODE_ID"), "CONFIG_GRPC_XDS_NODE_ID")
	c.pass("xds-node-metadata", "CONFIG_GRPC_XDS_NODE_METADATA")
	if headers := c.text("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"); headers != "" && !c.changed("xds-header") {
		var list []string
		for header := range strings.SplitSeq(headers, ",") {
			name, value, _ := strings.Cut(header, ":")
			list = append(list, name+"="+value)
		}
		f := c.flags.Lookup("xds-header")
		if err := f.Value.(pflag.SliceValue).Replace(list); err == nil { // texts as they are: it has none
			f.Changed = true
			setOrigin(f, originReference)
		}
	}
	if size, _ := strconv.ParseInt(c.text("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"), 0, 64); size != 0 {
		c.set("xds-max-message-bytes", strconv.FormatInt(size, 10), "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES")
	}
	if !c.bool("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
		return
	}
	c.set("xds-tls", "true", "CONFIG_GRPC_XDS_SERVER_USE_TLS")
	c.pass("xds-tls-cert", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT")
	c.pass("xds-tls-key", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY")
	c.pass("xds-tls-ca", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT")
	c.pass("xds-tls-server-name", "CONFIG_GRPC_XDS_SERVER_TLS_SAN")
}

func (c completion) limits() {
	c.passTrue("shadow", "SHADOW_MODE")
	c.passTrue("quota", "QUOTA_MODE")
	c.passTrue("response-metadata", "RESPONSE_DYNAMIC_METADATA")
	c.pass("key-space", "CACHE_KEY_PREFIX")
	if c.bool("LIMIT_RESPONSE_HEADERS_ENABLED") {
		c.set("headers", "ietf,reference", "LIMIT_RESPONSE_HEADERS_ENABLED")
	}
}

func (c completion) redis() {
	switch backend := c.text("BACKEND_TYPE"); backend {
	case "", "redis":
	case "memcache":
		c.wrong("BACKEND_TYPE", "%q: memcached cannot take the charges of a request as one: want redis", backend)
		return
	default:
		c.wrong("BACKEND_TYPE", "%q: want redis", backend)
		return
	}
	if c.changed("redis-url", "redis-url-file") {
		return
	}
	if url := c.redisURL(); url != "" {
		c.set("redis-url", url, "REDIS_URL")
	}
	if !c.bool("REDIS_TLS") {
		return
	}
	c.pass("redis-cert-file", "REDIS_TLS_CLIENT_CERT")
	c.pass("redis-key-file", "REDIS_TLS_CLIENT_KEY")
	c.pass("redis-ca-file", "REDIS_TLS_CACERT")
	c.passTrue("redis-any-name", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION")
}

// apply adds to o what no flag can say.
func (r *reference) apply(o *app.Options) {
	if r.env == nil {
		return
	}
	o.Reference = r.layout
	o.MergeDomains = r.env.bool("MERGE_DOMAIN_CONFIG")
	o.Headers.LimitHeader = r.env.text("LIMIT_LIMIT_HEADER")
	o.Headers.RemainingHeader = r.env.text("LIMIT_REMAINING_HEADER")
	o.Headers.ResetHeader = r.env.text("LIMIT_RESET_HEADER")
	o.XDS.MinBackoff = r.env.duration("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL")
	o.XDS.MaxBackoff = r.env.duration("XDS_CLIENT_BACKOFF_MAX_INTERVAL")
}

// tracing returns t, or what the reference's variables say if they turn tracing on. OpenTelemetry's own say the rest.
func (r *reference) tracing(t app.Tracing) (app.Tracing, error) {
	if r.env == nil || !r.env.bool("TRACING_ENABLED") {
		return t, nil
	}
	switch protocol := r.env.text("TRACING_EXPORTER_PROTOCOL"); protocol {
	case "http", "":
		t.Protocol = app.TraceHTTP
	case "grpc":
		t.Protocol = app.TraceGRPC
	default:
		return t, usagef("TRACING_EXPORTER_PROTOCOL: %q: want http or grpc", protocol)
	}
	ratio, _ := strconv.ParseFloat(r.env.text("TRACING_SAMPLING_RATE"), 64) // checked
	t.Ratio = &ratio
	t.Service = r.env.text("TRACING_SERVICE_NAME")
	t.Namespace = r.env.text("TRACING_SERVICE_NAMESPACE")
	t.Instance = r.env.text("TRACING_SERVICE_INSTANCE_ID")
	return t, nil
}

// tell says what people should know who come from the reference.
func (r *reference) tell(log *slog.Logger, o *app.Options) {
	if r.env == nil {
		return
	}
	if len(r.env.idle) > 0 {
		log.Info("variables of the reference service that have no effect here; docs/migrate.md says why", "names", strings.Join(r.env.idle, " "))
	}
	if r.env.bool("REDIS_PERSECOND") {
		log.Warn("REDIS_PERSECOND: one Redis has all buckets, those of limits a second too", "variable", "REDIS_URL")
	}
	if o.RedisURL == "" {
		log.Warn("REDIS_URL is not set: buckets live in this process, and are not shared")
	}
}

// logNames are the reference's names in JSON lines of what slog calls otherwise.
func logNames(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey:
		a.Key = "@timestamp"
	case slog.MessageKey:
		a.Key = "@message"
	case slog.LevelKey:
		a.Value = slog.StringValue(strings.ToLower(a.Value.String()))
	}
	return a
}
