package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A referenceVariable is one variable of the environment that the reference service (envoyproxy/ratelimit) reads. The
// table below is all there is to say of them; docs/migrate.md shows it to people.
type referenceVariable struct {
	name string
	kind kind   // how its text is read; a text that cannot be is an error of the start, as it is there
	def  string // what holds where it is not set, as there
	sets string // the flag that it sets, alone or with its neighbours; or, in words, what else; "": nothing, and is told of
}

// kind is how the text of a variable is read: as github.com/kelseyhightower/envconfig does.
type kind uint8

const (
	isText     kind = iota
	isBool          // as strconv.ParseBool
	isWhole         // a whole number
	isDecimal       // any number
	isDuration      // as time.ParseDuration
	isPairs         // key:value, comma-separated
)

// anyVariable ends a name that stands for all that begin so.
const anyVariable = "…"

var referenceVariables = []referenceVariable{
	{"HOST", isText, "0.0.0.0", "--http-addr"},
	{"PORT", isWhole, "8080", "--http-addr"},
	{"DEBUG_HOST", isText, "", "--admin-addr"},
	{"DEBUG_PORT", isWhole, "6070", "--admin-addr"},
	{"GRPC_HOST", isText, "0.0.0.0", "--grpc-addr"},
	{"GRPC_PORT", isWhole, "8081", "--grpc-addr"},
	{"GRPC_UDS", isText, "", "--grpc-addr"},
	{"GRPC_MAX_CONNECTION_AGE", isDuration, "", "--max-connection-age"},
	{"GRPC_MAX_CONNECTION_AGE_GRACE", isDuration, "", "--max-connection-age-grace"},
	{"GRPC_SERVER_USE_TLS", isBool, "", "--grpc-tls-cert"},
	{"GRPC_SERVER_TLS_CERT", isText, "", "--grpc-tls-cert"},
	{"GRPC_SERVER_TLS_KEY", isText, "", "--grpc-tls-key"},
	{"GRPC_CLIENT_TLS_CACERT", isText, "", "--grpc-tls-client-ca"},
	{"GRPC_CLIENT_TLS_SAN", isText, "", "--grpc-tls-client-san"},

	{"LOG_LEVEL", isText, "", "--log-level"},
	{"LOG_FORMAT", isText, "text", "--log-format"},

	{"CONFIG_TYPE", isText, "FILE", "where the rules come from"},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", isBool, "", "--start-without-rules"},
	{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", isBool, "", "--start-without-rules"},
	{"MERGE_DOMAIN_CONFIG", isBool, "", "whether a domain may be in several files"},
	{"RUNTIME_ROOT", isText, "/srv/runtime_data/current", "where the files are"},
	{"RUNTIME_SUBDIRECTORY", isText, "", "where the files are"},
	{"RUNTIME_APPDIRECTORY", isText, "config", "where the files are"},
	{"RUNTIME_IGNOREDOTFILES", isBool, "", "where the files are"},
	{"RUNTIME_WATCH_ROOT", isBool, "true", "where the files are"},
	{"CONFIG_GRPC_XDS_SERVER_URL", isText, "localhost:18000", "--xds-server"},
	{"CONFIG_GRPC_XDS_NODE_ID", isText, "default", "--xds-node-id"},
	{"CONFIG_GRPC_XDS_NODE_METADATA", isText, "", "--xds-node-metadata"},
	{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", isPairs, "", "--xds-header"},
	{"CONFIG_GRPC_XDS_SERVER_USE_TLS", isBool, "", "--xds-tls"},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", isText, "", "--xds-tls-cert"},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", isText, "", "--xds-tls-key"},
	{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", isText, "", "--xds-tls-ca"},
	{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", isText, "", "--xds-tls-server-name"},
	{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", isWhole, "", "--xds-max-message-bytes"},
	{"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", isDuration, "", "how soon a stream is opened again"},
	{"XDS_CLIENT_BACKOFF_MAX_INTERVAL", isDuration, "", "how soon a stream is opened again"},
	{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", isDecimal, "", ""},
	{"XDS_CLIENT_BACKOFF_JITTER", isBool, "", ""},
	{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", isDuration, "", ""},

	{"SHADOW_MODE", isBool, "", "--shadow"},
	{"QUOTA_MODE", isBool, "", "--quota"},
	{"LIMIT_RESPONSE_HEADERS_ENABLED", isBool, "", "--headers"},
	{"LIMIT_LIMIT_HEADER", isText, "RateLimit-Limit", "the name of a header"},
	{"LIMIT_REMAINING_HEADER", isText, "RateLimit-Remaining", "the name of a header"},
	{"LIMIT_RESET_HEADER", isText, "RateLimit-Reset", "the name of a header"},
	{"RESPONSE_DYNAMIC_METADATA", isBool, "", "--response-metadata"},
	{"CACHE_KEY_PREFIX", isText, "", "--key-space"},
	{"NEAR_LIMIT_RATIO", isDecimal, "", ""},
	{"LOCAL_CACHE_SIZE_IN_BYTES", isWhole, "", ""},
	{"EXPIRATION_JITTER_MAX_SECONDS", isWhole, "", ""},
	{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", isBool, "", ""},

	{"BACKEND_TYPE", isText, "redis", "redis, or an error"},
	{"REDIS_SOCKET_TYPE", isText, "unix", "--redis-url"},
	{"REDIS_TYPE", isText, "SINGLE", "--redis-url"},
	{"REDIS_URL", isText, "", "--redis-url"},
	{"REDIS_AUTH", isText, "", "--redis-url"},
	{"REDIS_SENTINEL_AUTH", isText, "", "--redis-url"},
	{"REDIS_TLS", isBool, "", "--redis-url"},
	{"REDIS_TLS_CLIENT_CERT", isText, "", "--redis-cert-file"},
	{"REDIS_TLS_CLIENT_KEY", isText, "", "--redis-key-file"},
	{"REDIS_TLS_CACERT", isText, "", "--redis-ca-file"},
	{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", isBool, "", "--redis-any-name"},
	{"REDIS_PERSECOND", isBool, "", ""},
	{"REDIS_PERSECOND_" + anyVariable, isText, "", ""},
	{"REDIS_POOL_SIZE", isWhole, "", ""},
	{"REDIS_POOL_ON_EMPTY_" + anyVariable, isText, "", ""},
	{"REDIS_PIPELINE_WINDOW", isDuration, "", ""},
	{"REDIS_PIPELINE_LIMIT", isWhole, "", ""},
	{"REDIS_CLUSTER_PIPELINE_PARALLELISM", isWhole, "", ""},
	{"REDIS_TIMEOUT", isDuration, "", ""},
	{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", isBool, "", ""},
	{"REDIS_STARTUP_" + anyVariable, isText, "", ""},
	{"MEMCACHE_" + anyVariable, isText, "", ""},

	{"USE_STATSD", isBool, "", ""},
	{"STATSD_" + anyVariable, isText, "", ""},
	{"USE_DOG_STATSD", isBool, "", ""},
	{"USE_DOG_STATSD_MOGRIFIERS", isText, "", ""},
	{"DOG_STATSD_MOGRIFIER" + anyVariable, isText, "", ""},
	{"USE_PROMETHEUS", isBool, "", ""},
	{"PROMETHEUS_ADDR", isText, "", ""},
	{"PROMETHEUS_PATH", isText, "", ""},
	{"PROMETHEUS_MAPPER_YAML", isText, "", ""},
	{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", isBool, "", ""},
	{"EXTRA_TAGS", isPairs, "", ""},
	{"STATS_FLUSH_INTERVAL", isDuration, "", ""},
	{"DISABLE_STATS", isBool, "", ""},

	{"TRACING_ENABLED", isBool, "", "whether spans are sent"},
	{"TRACING_EXPORTER_PROTOCOL", isText, "http", "how spans are sent"},
	{"TRACING_SAMPLING_RATE", isDecimal, "1", "how many spans are sent"},
	{"TRACING_SERVICE_NAME", isText, "RateLimit", "what spans say"},
	{"TRACING_SERVICE_NAMESPACE", isText, "", "what spans say"},
	{"TRACING_SERVICE_INSTANCE_ID", isText, "", "what spans say"},
}

// referenceEnv is what the reference's variables say. It collects what is wrong with them.
type referenceEnv struct {
	values map[string]string // of those that are set, and read
	idle   []string          // those set that have no effect, by name
	errs   []error
}

// readReference reads every variable of the table.
func readReference(environ []string) *referenceEnv {
	e := &referenceEnv{values: map[string]string{}}
	set := map[string]string{}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			set[name] = value
		}
	}
	for _, v := range referenceVariables {
		if prefix, ok := strings.CutSuffix(v.name, anyVariable); ok {
			for name := range set {
				if strings.HasPrefix(name, prefix) && !isReferenceVariable(name) {
					e.idle = append(e.idle, name)
				}
			}
			continue
		}
		value, ok := set[v.name]
		// An empty text is one; an empty anything else is left behind by a chart.
		if !ok || value == "" && v.kind != isText {
			continue
		}
		if err := v.kind.check(value); err != nil {
			if v.kind != isPairs { // of which a value may be a secret
				err = fmt.Errorf("%q: %w", value, err)
			}
			e.wrong(v.name, "%w", err)
			continue
		}
		e.values[v.name] = value
		if v.sets == "" {
			e.idle = append(e.idle, v.name)
		}
	}
	slices.Sort(e.idle)
	return e
}

// isReferenceVariable reports whether a name is one of the table, itself.
func isReferenceVariable(name string) bool {
	return slices.ContainsFunc(referenceVariables, func(v referenceVariable) bool { return v.name == name })
}

// wrong notes what is wrong with a variable.
func (e *referenceEnv) wrong(name, format string, args ...any) {
	e.errs = append(e.errs, fmt.Errorf("%s: "+format, append([]any{name}, args...)...))
}

// given reports whether a variable is set to something.
func (e *referenceEnv) given(name string) bool { return e.values[name] != "" }

// text returns a variable's value, or its default where it is not set.
func (e *referenceEnv) text(name string) string {
	if value, ok := e.values[name]; ok {
		return value
	}
	for _, v := range referenceVariables {
		if v.name == name {
			return v.def
		}
	}
	panic("no variable " + name) // the name is a constant of a caller
}

func (e *referenceEnv) bool(name string) bool {
	b, _ := strconv.ParseBool(e.text(name)) // checked; "" is false
	return b
}

func (e *referenceEnv) duration(name string) time.Duration {
	d, _ := time.ParseDuration(e.text(name)) // checked; "" is 0
	return d
}

// check returns an error if a text is not of the kind.
func (k kind) check(value string) error {
	var err error
	want := ""
	switch k {
	case isText:
	case isBool:
		_, err = strconv.ParseBool(value)
		want = "true or false"
	case isWhole:
		_, err = strconv.ParseInt(value, 0, 64)
		want = "a whole number"
	case isDecimal:
		_, err = strconv.ParseFloat(value, 64)
		want = "a number"
	case isDuration:
		_, err = time.ParseDuration(value)
		want = "a duration, as 30s or 1h30m"
	case isPairs:
		for item := range strings.SplitSeq(value, ",") {
			if !strings.Contains(item, ":") {
				err, want = strconv.ErrSyntax, "key:value, comma-separated"
			}
		}
	}
	if err != nil {
		return fmt.Errorf("want %s", want)
	}
	return nil
}
