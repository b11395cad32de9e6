package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// metrics is nil when nobody registers them.
type metrics struct {
	ok, timeout, failed prometheus.Observer
	inFlight            atomic.Int64
	races, lost         prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return nil, nil
	}
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ratelimitd_redisstore_request_duration_seconds",
		Help:    "Time to take the charges of one request in Redis, waiting included, by outcome: ok, timeout or error.",
		Buckets: []float64{.0001, .0002, .0003, .0005, .00075, .001, .0015, .002, .003, .004, .005, .0075, .01, .015, .025},
	}, []string{"outcome"})
	m := new(metrics)
	inFlight := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_redisstore_requests_in_flight",
		Help: "Requests whose charges are being taken in Redis now.",
	}, func() float64 { return float64(m.inFlight.Load()) })
	races := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ratelimitd_redisstore_lost_races_total",
		Help: "Requests over several slots of a Cluster that were refused after some of them had been charged, which was given back.",
	})
	lost := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ratelimitd_redisstore_lost_hits_total",
		Help: "Calls that gave hits back after a lost race and may have been lost: those hits come back by refilling only.",
	})
	for _, c := range []prometheus.Collector{duration, inFlight, races, lost} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of redisstore: %w", err)
		}
	}
	m.ok, m.timeout, m.failed = duration.WithLabelValues("ok"), duration.WithLabelValues("timeout"), duration.WithLabelValues("error")
	m.races, m.lost = races, lost
	return m, nil
}

func (m *metrics) lostRace() {
	if m != nil {
		m.races.Inc()
	}
}

func (m *metrics) lostHits() {
	if m != nil {
		m.lost.Inc()
	}
}

// observation is the measurement and the span of one Take.
type observation struct {
	metrics *metrics
	span    trace.Span // nil: none
	start   time.Time
}

// observe begins an observation. Without metrics and without a recording parent it does nothing.
func (s *Store) observe(ctx context.Context, charges int) observation {
	o := observation{metrics: s.metrics}
	if s.tracer != nil && trace.SpanFromContext(ctx).IsRecording() {
		_, o.span = s.tracer.Start(ctx, "redisstore.Take", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("db.system.name", "redis"),
			attribute.String("db.operation.name", "EVALSHA"),
			attribute.Int("ratelimitd.charges", charges),
		))
	}
	if o.metrics != nil {
		o.metrics.inFlight.Add(1)
		o.start = time.Now()
	}
	return o
}

// end ends it with what Take returns.
func (o observation) end(err error) {
	if o.metrics != nil {
		o.metrics.inFlight.Add(-1)
		o.metrics.outcome(err).Observe(time.Since(o.start).Seconds())
	}
	if o.span != nil {
		if err != nil {
			o.span.SetStatus(codes.Error, err.Error())
		}
		o.span.End()
	}
}

func (m *metrics) outcome(err error) prometheus.Observer {
	switch {
	case err == nil:
		return m.ok
	case errors.Is(err, context.DeadlineExceeded):
		return m.timeout
	default:
		return m.failed
	}
}
