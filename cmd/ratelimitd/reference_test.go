package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

// completed returns the flags of serve that environ sets, and what no flag says.
func completed(t *testing.T, mode string, environ ...string) (map[string]string, *reference, []error) {
	t.Helper()
	cmd, r := serveCommand(), new(reference)
	errs := r.complete(cmd, mode, environ)
	set := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if origin(cmd, f.Name) == originReference {
			set["--"+f.Name] = f.Value.String()
			if list, ok := f.Value.(pflag.SliceValue); ok {
				set["--"+f.Name] = strings.Join(list.GetSlice(), ",")
			}
		}
	})
	return set, r, errs
}

// standing are the flags that the reference's name alone sets: its defaults.
var standing = map[string]string{
	"--http-addr": "0.0.0.0:8080", "--grpc-addr": "0.0.0.0:8081", "--admin-addr": "127.0.0.1:6070",
	"--log-format": "text", "--default-profile": "envoy", "--allow-empty-rules": "true",
}

// Every variable sets the flag that the table names, and nothing else but what its neighbours do.
func TestReferenceVariables(t *testing.T) {
	t.Parallel()
	const tls, xds, redis = "GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k ",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_USE_TLS=true ", "REDIS_SOCKET_TYPE=tcp REDIS_URL=r:6379 "
	tests := []struct{ variable, environ, flag, want string }{
		{"HOST", "HOST=127.0.0.1", "--http-addr", "127.0.0.1:8080"},
		{"HOST", "HOST=::", "--http-addr", "[::]:8080"},
		{"HOST", "HOST=[::1]", "--http-addr", "[::1]:8080"},
		{"HOST", "HOST=", "--http-addr", ":8080"},
		{"PORT", "PORT=80", "--http-addr", "0.0.0.0:80"},
		{"DEBUG_HOST", "DEBUG_HOST=::", "--admin-addr", "[::]:6070"},
		{"DEBUG_HOST", "DEBUG_HOST=::", "--admin-remote", "true"},
		{"DEBUG_PORT", "DEBUG_PORT=61", "--admin-addr", "127.0.0.1:61"},
		{"GRPC_HOST", "GRPC_HOST=::", "--grpc-addr", "[::]:8081"},
		{"GRPC_PORT", "GRPC_PORT=81", "--grpc-addr", "0.0.0.0:81"},
		{"GRPC_UDS", "GRPC_UDS=/run/s GRPC_PORT=81", "--grpc-addr", "unix:///run/s"},
		{"GRPC_MAX_CONNECTION_AGE", "GRPC_MAX_CONNECTION_AGE=24h", "--max-connection-age", "24h0m0s"},
		{"GRPC_MAX_CONNECTION_AGE_GRACE", "GRPC_MAX_CONNECTION_AGE_GRACE=1h", "--max-connection-age-grace", "1h0m0s"},
		{"GRPC_SERVER_USE_TLS", tls, "--grpc-tls-cert", "c"},
		{"GRPC_SERVER_USE_TLS", "GRPC_SERVER_USE_TLS=0 GRPC_SERVER_TLS_CERT=c", "--grpc-tls-cert", ""},
		{"GRPC_SERVER_TLS_CERT", tls, "--grpc-tls-cert", "c"},
		{"GRPC_SERVER_TLS_KEY", tls, "--grpc-tls-key", "k"},
		{"GRPC_CLIENT_TLS_CACERT", tls + "GRPC_CLIENT_TLS_CACERT=ca", "--grpc-tls-client-ca", "ca"},
		{"GRPC_CLIENT_TLS_SAN", tls + "GRPC_CLIENT_TLS_CACERT=ca GRPC_CLIENT_TLS_SAN=envoy", "--grpc-tls-client-san", "envoy"},
		{"LOG_LEVEL", "LOG_LEVEL=Warning", "--log-level", "WARN"},
		{"LOG_LEVEL", "LOG_LEVEL=trace", "--log-level", "DEBUG"},
		{"LOG_LEVEL", "LOG_LEVEL=fatal", "--log-level", "ERROR"},
		{"LOG_FORMAT", "LOG_FORMAT=json", "--log-format", "json"},
		{"LOG_FORMAT", "LOG_FORMAT=other", "--log-format", "text"},
		{"FORCE_START_WITHOUT_INITIAL_CONFIG", "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "--start-without-rules", "true"},
		{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "FORCE_START_WITHOUT_INITIAL_CONFIG=true HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true", "--start-without-rules", ""},
		{"CONFIG_GRPC_XDS_SERVER_URL", xds, "--xds-server", "localhost:18000"},
		{"CONFIG_GRPC_XDS_SERVER_URL", xds + "CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001", "--xds-server", "envoy-gateway:18001"},
		{"CONFIG_GRPC_XDS_NODE_ID", xds, "--xds-node-id", "default"},
		{"CONFIG_GRPC_XDS_NODE_ID", xds + "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit", "--xds-node-id", "envoy-ratelimit"},
		{"CONFIG_GRPC_XDS_NODE_METADATA", xds + "CONFIG_GRPC_XDS_NODE_METADATA=a=b,c=d", "--xds-node-metadata", "a=b,c=d"},
		{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", xds + `CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a:b,c:d:e`, "--xds-header", "a=b,c=d:e"},
		{"CONFIG_GRPC_XDS_SERVER_USE_TLS", xds, "--xds-tls", "true"},
		{"CONFIG_GRPC_XDS_SERVER_USE_TLS", "CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c", "--xds-tls-cert", ""},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", xds + "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c", "--xds-tls-cert", "c"},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", xds + "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=k", "--xds-tls-key", "k"},
		{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", xds + "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=ca", "--xds-tls-ca", "ca"},
		{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", xds + "CONFIG_GRPC_XDS_SERVER_TLS_SAN=name", "--xds-tls-server-name", "name"},
		{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", xds + "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=9000000", "--xds-max-message-bytes", "9000000"},
		{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", xds + "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=0", "--xds-max-message-bytes", ""},
		{"SHADOW_MODE", "SHADOW_MODE=T", "--shadow", "true"},
		{"QUOTA_MODE", "QUOTA_MODE=1", "--quota", "true"},
		{"LIMIT_RESPONSE_HEADERS_ENABLED", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "--headers", "ietf,reference"},
		{"RESPONSE_DYNAMIC_METADATA", "RESPONSE_DYNAMIC_METADATA=true", "--response-metadata", "true"},
		{"CACHE_KEY_PREFIX", "CACHE_KEY_PREFIX=team-a:", "--key-space", "team-a:"},
		{"REDIS_SOCKET_TYPE", redis, "--redis-url", "redis://r:6379"},
		{"REDIS_URL", "REDIS_URL=/run/redis.sock", "--redis-url", "unix:///run/redis.sock"},
		{"REDIS_URL", "REDIS_URL=redis://user:pass@r:6379/2", "--redis-url", "redis://user:pass@r:6379/2"},
		{"REDIS_URL", "REDIS_URL=redis-cluster://a:1,b:2", "--redis-url", "redis-cluster://a:1,b:2"},
		{"REDIS_TYPE", "REDIS_TYPE=sentinel REDIS_URL=mymaster,s1:26379,s2:26379 REDIS_AUTH=p", "--redis-url", "redis-sentinel://:p@mymaster@s1:26379,s2:26379"},
		{"REDIS_TYPE", "REDIS_TYPE=Cluster REDIS_URL=a:1,b:2", "--redis-url", "redis-cluster://a:1,b:2"},
		{"REDIS_AUTH", redis + "REDIS_AUTH=p@/:?#%", "--redis-url", "redis://p%40%2F:%3F%23%25@r:6379"},
		{"REDIS_AUTH", redis + "REDIS_AUTH=secret", "--redis-url", "redis://:secret@r:6379"},
		{"REDIS_AUTH", "REDIS_URL=redis://old@r:6379 REDIS_AUTH=me:secret", "--redis-url", "redis://me:secret@r:6379"},
		{"REDIS_AUTH", "REDIS_URL=/run/redis.sock REDIS_AUTH=secret", "--redis-url", "unix://:secret@/run/redis.sock"},
		{"REDIS_SENTINEL_AUTH", "REDIS_TYPE=sentinel REDIS_URL=m,s:1 REDIS_SENTINEL_AUTH=u:p", "--redis-url", "redis-sentinel://m@s:1?sentinel_password=p&sentinel_username=u"},
		{"REDIS_TLS", redis + "REDIS_TLS=true", "--redis-url", "rediss://r:6379"},
		{"REDIS_TLS", redis + "REDIS_TLS=false REDIS_TLS_CACERT=ca", "--redis-ca-file", ""},
		{"REDIS_TLS_CLIENT_CERT", redis + "REDIS_TLS=true REDIS_TLS_CLIENT_CERT=c", "--redis-cert-file", "c"},
		{"REDIS_TLS_CLIENT_KEY", redis + "REDIS_TLS=true REDIS_TLS_CLIENT_KEY=k", "--redis-key-file", "k"},
		{"REDIS_TLS_CACERT", redis + "REDIS_TLS=true REDIS_TLS_CACERT=ca", "--redis-ca-file", "ca"},
		{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", redis + "REDIS_TLS=true REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", "--redis-any-name", "true"},
	}
	tested := map[string]bool{}
	for _, test := range tests {
		tested[test.variable] = true
		got, _, errs := completed(t, "on", strings.Fields(test.environ)...)
		if len(errs) > 0 || got[test.flag] != test.want {
			t.Errorf("%s: got %s %q and errors %v, want %q", test.environ, test.flag, got[test.flag], errs, test.want)
		}
	}
	for _, v := range referenceVariables {
		if strings.HasPrefix(v.sets, "--") && !tested[v.name] {
			t.Errorf("%s: no case", v.name)
		}
		if strings.HasPrefix(v.sets, "--") && serveCommand().Flags().Lookup(v.sets[2:]) == nil {
			t.Errorf("%s: there is no flag %s", v.name, v.sets)
		}
		if v.sets == "" { // set to something that is right: nothing comes of it, and it is told of
			value := map[kind]string{isText: "x", isBool: "true", isWhole: "7", isDecimal: "0.5", isDuration: "7s", isPairs: "a:b"}[v.kind]
			name := strings.Replace(v.name, anyVariable, "X", 1)
			got, r, errs := completed(t, "on", name+"="+value)
			if diff := cmp.Diff(standing, got); diff != "" || len(errs) > 0 {
				t.Errorf("%s: got errors %v and (-want +got):\n%s", name, errs, diff)
			}
			if !slices.Contains(r.env.idle, name) {
				t.Errorf("%s: not told of", name)
			}
		}
	}
	got, _, _ := completed(t, "on")
	if diff := cmp.Diff(standing, got); diff != "" {
		t.Errorf("nothing set (-want +got):\n%s", diff)
	}
}

// What no flag says.
func TestReferenceVariablesWithoutFlags(t *testing.T) {
	t.Parallel()
	apply := func(environ ...string) app.Options {
		t.Helper()
		_, r, errs := completed(t, "on", environ...)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		var o app.Options
		r.apply(&o)
		return o
	}
	o := apply()
	if diff := cmp.Diff(&config.ReferenceLayout{Root: "/srv/runtime_data/current", AppDirectory: "config", WatchRoot: true}, o.Reference); diff != "" {
		t.Errorf("nothing set (-want +got):\n%s", diff)
	}
	o = apply("RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_APPDIRECTORY=x", "RUNTIME_WATCH_ROOT=false",
		"RUNTIME_IGNOREDOTFILES=true", "MERGE_DOMAIN_CONFIG=true", "LIMIT_LIMIT_HEADER=X-L", "LIMIT_REMAINING_HEADER=X-R", "LIMIT_RESET_HEADER=X-T")
	want := &config.ReferenceLayout{Root: "/data", Subdirectory: "ratelimit", AppDirectory: "x", IgnoreDotFiles: true}
	if diff := cmp.Diff(want, o.Reference); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if h := o.Headers; !o.MergeDomains || h.LimitHeader != "X-L" || h.RemainingHeader != "X-R" || h.ResetHeader != "X-T" {
		t.Errorf("got merging %v and headers %+v", o.MergeDomains, o.Headers)
	}
	o = apply("CONFIG_TYPE=GRPC_XDS_SOTW", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=1s", "XDS_CLIENT_BACKOFF_MAX_INTERVAL=2s", "RUNTIME_ROOT=/data")
	if o.Reference != nil || o.XDS.MinBackoff != time.Second || o.XDS.MaxBackoff != 2*time.Second {
		t.Errorf("xDS: got files %v and backoff %v to %v", o.Reference, o.XDS.MinBackoff, o.XDS.MaxBackoff)
	}

	ratio := func(environ ...string) app.Tracing {
		t.Helper()
		_, r, _ := completed(t, "on", environ...)
		tracing, err := r.tracing(app.Tracing{})
		if err != nil {
			t.Fatal(err)
		}
		return tracing
	}
	if got := ratio("TRACING_SERVICE_NAME=x"); got != (app.Tracing{}) {
		t.Errorf("tracing off: got %+v", got)
	}
	got := ratio("TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL=grpc", "TRACING_SAMPLING_RATE=0.25", "TRACING_SERVICE_NAMESPACE=ns", "TRACING_SERVICE_INSTANCE_ID=i")
	if got.Protocol != app.TraceGRPC || *got.Ratio != 0.25 || got.Service != "RateLimit" || got.Namespace != "ns" || got.Instance != "i" {
		t.Errorf("tracing on: got %+v", got)
	}
	if got := ratio("TRACING_ENABLED=true"); got.Protocol != app.TraceHTTP || *got.Ratio != 1 {
		t.Errorf("tracing on, its defaults: got %+v", got)
	}
}

// What is wrong names its variable, and shows no secret.
func TestReferenceVariablesThatAreWrong(t *testing.T) {
	t.Parallel()
	tests := []struct{ environ, want string }{
		{"PORT=http", `PORT: "http": want a whole number`},
		{"SHADOW_MODE=yes", `SHADOW_MODE: "yes": want true or false`},
		{"GRPC_MAX_CONNECTION_AGE=24", `GRPC_MAX_CONNECTION_AGE: "24": want a duration, as 30s or 1h30m`},
		{"NEAR_LIMIT_RATIO=most", `NEAR_LIMIT_RATIO: "most": want a number`},
		{"EXTRA_TAGS=a", `EXTRA_TAGS: want key:value, comma-separated`},
		{"LOG_LEVEL=loud", `LOG_LEVEL: "loud": want panic, fatal, error, warn, info, debug or trace`},
		{"CONFIG_TYPE=ZOOKEEPER", `CONFIG_TYPE: "ZOOKEEPER": want FILE or GRPC_XDS_SOTW`},
		{"BACKEND_TYPE=memcache", `BACKEND_TYPE: "memcache": memcached cannot take the charges of a request as one: want redis`},
		{"BACKEND_TYPE=dynamo", `BACKEND_TYPE: "dynamo": want redis`},
		{"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c", `GRPC_SERVER_TLS_KEY: want a file, since GRPC_SERVER_USE_TLS is true`},
		{"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k GRPC_CLIENT_TLS_SAN=x", `GRPC_CLIENT_TLS_SAN: want GRPC_CLIENT_TLS_CACERT as well`},
		{"REDIS_TYPE=ring REDIS_URL=x", `REDIS_TYPE: "ring": want SINGLE, SENTINEL or CLUSTER`},
		{"REDIS_TYPE=SENTINEL REDIS_URL=canary", `REDIS_URL: want the master's name and one Sentinel or more, comma-separated`},
		{"REDIS_URL=canary:6379", `REDIS_URL: want the path of a socket, or REDIS_SOCKET_TYPE=tcp`},
		{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=canary", `CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: want key:value, comma-separated`},
		{"CONFIG_TYPE=GRPC_XDS_SOTW XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=99999999999999999999", `XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: "99999999999999999999": want a whole number`},
	}
	for _, test := range tests {
		_, _, errs := completed(t, "on", strings.Fields(test.environ)...)
		if len(errs) != 1 || errs[0].Error() != test.want {
			t.Errorf("%s: got %q, want %q", test.environ, errs, test.want)
		}
		for _, err := range errs {
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %v shows a secret", test.environ, err)
			}
		}
	}
	if _, _, errs := completed(t, "on", "PORT=x", "SHADOW_MODE=x"); len(errs) != 2 {
		t.Errorf("got %q, want all that is wrong at once", errs)
	}
}

// Under our own name they are read if one of them says where the rules are.
func TestReferenceEnvironmentIsRecognized(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mode, environ string
		want          bool
	}{
		{"auto", "PORT=80 HOST=x LOG_LEVEL=loud REDIS_URL=x SHADOW_MODE=true", false},
		{"auto", "RUNTIME_ROOT=/data", true},
		{"auto", "RUNTIME_SUBDIRECTORY=x", true},
		{"auto", "CONFIG_TYPE=FILE", true},
		{"auto", "CONFIG_TYPE=", false},
		{"off", "RUNTIME_ROOT=/data PORT=x", false},
		{"on", "", true},
	} {
		got, r, errs := completed(t, test.mode, strings.Fields(test.environ)...)
		if (r.env != nil) != test.want || (len(got) > 0) != test.want || len(errs) > 0 {
			t.Errorf("%s, %s: got %v and errors %v, want it read: %v", test.mode, test.environ, got, errs, test.want)
		}
	}
}

// A flag wins over our own environment, that over the reference's, that over the config file, that over the default.
func TestReferencePrecedence(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	settings := "http-addr: file\ngrpc-addr: file\nadmin-addr: file\ndrain-delay: 1s\nlog-level: debug\n"
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, r := serveCommand(), new(reference)
	cmd.Flags().String("config", "", "")
	newRoot().AddCommand(cmd)
	if err := cmd.ParseFlags([]string{"--config", file, "--http-addr", "flag"}); err != nil {
		t.Fatal(err)
	}
	ours := map[string]string{"RATELIMITD_HTTP_ADDR": "ours", "RATELIMITD_GRPC_ADDR": "ours", "RATELIMITD_RULES": "ours"}
	err := completeSettings(cmd, func(name string) (string, bool) { v, ok := ours[name]; return v, ok }, func(cmd *cobra.Command) []error {
		return r.complete(cmd, "on", []string{"PORT=1", "GRPC_PORT=2", "DEBUG_PORT=3"})
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, name := range []string{"http-addr", "grpc-addr", "admin-addr", "drain-delay", "log-level", "stop-timeout", "default-profile", "allow-empty-rules"} {
		got[name] = cmd.Flags().Lookup(name).Value.String()
	}
	want := map[string]string{
		"http-addr": "flag", "grpc-addr": "ours", "admin-addr": "127.0.0.1:3", "drain-delay": "1s", "log-level": "DEBUG", "stop-timeout": "10s",
		"default-profile": "envoy", "allow-empty-rules": "false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.layout != nil {
		t.Error("got the reference's files beside rules of our own")
	}
}

// docs/migrate.md lists every variable, and says of each what the table says.
func TestReferenceVariablesAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "migrate.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[A-Z0-9_…`, ]+`) \\| ([^|]*) \\|").FindAllStringSubmatch(string(doc), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			documented[strings.Trim(name, "`")] = strings.Trim(row[2], "`")
		}
	}
	listed := map[string]string{}
	for _, v := range referenceVariables {
		listed[v.name] = v.sets
		if v.sets == "" {
			listed[v.name] = "nothing"
		}
	}
	if diff := cmp.Diff(listed, documented); diff != "" {
		t.Errorf("docs/migrate.md does not match the variables (-listed +documented):\n%s", diff)
	}
	if len(listed) != len(referenceVariables) {
		t.Error("a variable is listed twice")
	}
}
