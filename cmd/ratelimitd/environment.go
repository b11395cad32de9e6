package main

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/ratelimitd/ratelimitd/internal/app"
)

// tracing reads which traces OpenTelemetry's standard variables ask for. The specification's default is to export; ours
// is off until a variable says so, since most who start the service have no receiver. What the variables that are not
// read here mean is up to the SDK.
func tracing(lookup func(string) (string, bool)) (app.Tracing, error) {
	get := func(names ...string) string {
		for _, name := range names {
			if value, _ := lookup(name); value != "" {
				return value
			}
		}
		return ""
	}
	t := app.Tracing{Sampled: get("OTEL_TRACES_SAMPLER") != ""}
	if strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") {
		return t, nil
	}
	switch exporter := get("OTEL_TRACES_EXPORTER"); exporter {
	case "otlp":
	case "none":
		return t, nil
	case "":
		if get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
			return t, nil
		}
	default:
		return t, fmt.Errorf("OTEL_TRACES_EXPORTER: %q: want otlp or none", exporter)
	}
	switch protocol := get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "grpc":
		t.Protocol = app.TraceGRPC
	case "http/protobuf", "":
		t.Protocol = app.TraceHTTP
	default:
		return t, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q: want grpc or http/protobuf", protocol)
	}
	return t, nil
}

const memoryRatio = 0.9

// limitMemory sets Go's memory limit from the container's or the machine's, and returns it if garbage is to be allowed
// for under it, else 0: there is none, or GOGC says how often to collect. GOMEMLIMIT wins.
func limitMemory(log *slog.Logger) uint64 {
	limit, err := memlimit.Set(
		memlimit.WithRatio(memoryRatio),
		memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)),
	)
	if err != nil {
		log.Debug("no memory limit found", "error", err)
		return 0
	}
	log.Debug("memory", "limit_bytes", limit)
	if os.Getenv("GOGC") != "" || limit == math.MaxInt64 {
		return 0
	}
	return uint64(limit)
}
