package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/transport"
)

// A Service named ratelimitd makes Kubernetes set variables of these names in every pod; none may be one of ours.
func TestVariablesAreNotThoseOfKubernetes(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name := variable(f.Name)
			if name == "RATELIMITD_PORT" || strings.HasPrefix(name, "RATELIMITD_PORT_") || strings.HasPrefix(name, "RATELIMITD_SERVICE_") {
				t.Errorf("--%s of %s: %s is a variable of Kubernetes", f.Name, cmd.Name(), name)
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot())
}

// Every flag can be set by its variable: none is left out, whatever its type.
func TestEveryFlagHasAVariable(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"bool": "true", "string": "text", "int": "7", "int64": "7", "uint64": "7", "float64": "7", "uint32": "7", "duration": "7s", "stringSlice": "ietf", "stringArray": "a=b", "level": "WARN",
	}
	walk := func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "config" {
				return
			}
			value, ok := values[f.Value.Type()]
			if words := strings.Split(f.Value.Type(), "|"); len(words) > 1 {
				value, ok = words[1], true
			}
			if f.Name == "log-level" {
				value, ok = "WARN", true
			}
			if !ok {
				t.Fatalf("--%s has the type %s, for which this test has no value", f.Name, f.Value.Type())
			}
			err := completeSettings(cmd, func(name string) (string, bool) {
				if name == variable(f.Name) {
					return value, true
				}
				return "", false
			}, nil)
			if err != nil || strings.Trim(f.Value.String(), "[]") != value || origin(cmd, f.Name) != originEnv {
				t.Errorf("--%s by %s=%s: got value %s from %q, error %v", f.Name, variable(f.Name), value, f.Value, origin(cmd, f.Name), err)
			}
		})
	}
	for _, c := range newRoot().Commands() {
		walk(c)
	}
}

func TestTracingVariables(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		env  map[string]string
		want app.Tracing
	}{
		{"nothing set", nil, app.Tracing{}},
		{"endpoint", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, app.Tracing{Protocol: app.TraceHTTP}},
		{"endpoint of traces", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, app.Tracing{Protocol: app.TraceHTTP}},
		{"exporter", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, app.Tracing{Protocol: app.TraceHTTP}},
		{"none", map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, app.Tracing{}},
		{"disabled", map[string]string{"OTEL_SDK_DISABLED": "True", "OTEL_TRACES_EXPORTER": "otlp"}, app.Tracing{}},
		{"grpc", map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, app.Tracing{Protocol: app.TraceGRPC}},
		{
			"protocol of traces wins",
			map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
			app.Tracing{Protocol: app.TraceGRPC},
		},
		{"sampler", map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "always_on"}, app.Tracing{Protocol: app.TraceHTTP, Sampled: true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := tracing(func(name string) (string, bool) { v, ok := test.env[name]; return v, ok })
			if err != nil || got != test.want {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	tests := []struct {
		words string
		want  transport.Headers
		ok    bool
	}{
		{"none", transport.Headers{}, true},
		{"ietf", transport.Headers{IETF: true}, true},
		{"ietf,github", transport.Headers{IETF: true, Legacy: transport.LegacyGitHub}, true},
		{"reference,envoy,envoy", transport.Headers{Reference: true, Legacy: transport.LegacyEnvoy}, true},
		{"envoy,github", transport.Headers{}, false},
		{"none,ietf", transport.Headers{}, false},
		{"", transport.Headers{}, false},
	}
	for _, test := range tests {
		got, err := headers(strings.Split(test.words, ","))
		if (err == nil) != test.ok || err == nil && got != test.want {
			t.Errorf("%q: got %+v, %v, want %+v and no error %t", test.words, got, err, test.want, test.ok)
		}
	}
}
