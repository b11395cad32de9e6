package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Build says which program runs.
type Build struct{ Version, Revision string }

// newRegistry returns a registry of this process: Go's and the system's numbers, and which build it is.
func newRegistry(b Build) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ratelimitd_build_info",
		Help: "Which build runs; always 1.",
	}, []string{"version", "revision", "goversion"})
	info.WithLabelValues(b.Version, b.Revision, runtime.Version()).Set(1)
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		info,
	)
	return reg
}

// TraceProtocol says how spans leave the process. The zero value is TraceOff.
type TraceProtocol uint8

// The protocols, as OTEL_EXPORTER_OTLP_PROTOCOL names them.
const (
	TraceOff  TraceProtocol = iota // no spans are made, and nothing is installed that would cost a request time
	TraceGRPC                      // grpc
	TraceHTTP                      // http/protobuf
)

// Tracing says whether and how to trace. Where spans go, and everything else about the exporter and its batches, the
// OpenTelemetry SDK reads from the standard OTEL_… variables. The zero value is off.
type Tracing struct {
	Protocol TraceProtocol
	Sampled  bool     // the environment chose a sampler; else Ratio says
	Ratio    *float64 // share of requests that are traced, and those whose caller is; nil: one in 1,000

	Service, Namespace, Instance string // what spans say of this process; "": ratelimitd, and nothing
}

// defaultSampled is the share of requests traced if nobody says otherwise: a service asked 100,000 times a second must
// not send as many spans because an endpoint was set.
const defaultSampled float64 = 0.001

// newTracerProvider returns a provider that exports by OTLP, nil if tracing is off. It does not wait for the receiver.
func newTracerProvider(ctx context.Context, t Tracing, b Build) (*sdktrace.TracerProvider, error) {
	var exporter sdktrace.SpanExporter
	var err error
	switch t.Protocol {
	case TraceOff:
		return nil, nil
	case TraceGRPC:
		exporter, err = otlptracegrpc.New(ctx)
	case TraceHTTP:
		exporter, err = otlptracehttp.New(ctx)
	default:
		err = fmt.Errorf("trace protocol %d: unknown", t.Protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("make trace exporter: %w", err)
	}
	// Neither the command line nor the environment is detected: either may hold a password.
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", cmp.Or(t.Service, "ratelimitd")),
			attribute.String("service.version", b.Version),
		),
		resource.WithAttributes(t.place()...),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES; last, so that they win
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("describe this process: %w", err), exporter.Shutdown(ctx))
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(res)}
	if !t.Sampled {
		ratio := defaultSampled
		if t.Ratio != nil {
			ratio = *t.Ratio
		}
		opts = append(opts, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))))
	}
	return sdktrace.NewTracerProvider(opts...), nil
}

// place returns which of several services of a name this process is, as far as that is told.
func (t Tracing) place() (attrs []attribute.KeyValue) {
	if t.Namespace != "" {
		attrs = append(attrs, attribute.String("service.namespace", t.Namespace))
	}
	if t.Instance != "" {
		attrs = append(attrs, attribute.String("service.instance.id", t.Instance))
	}
	return attrs
}
