package transport

import (
	"errors"
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// metrics are the transport's own; decisions are counted by the engine. The gRPC and the HTTP side of one process share
// a registerer, and so these.
type metrics struct {
	connections prometheus.Gauge
	panics      prometheus.Counter
	grpc, http  answered
}

// answered counts requests by the gRPC code they were answered with.
type answered map[codes.Code]prometheus.Counter

func (a answered) count(c codes.Code) {
	if n := a[c]; n != nil {
		n.Inc()
	}
}

// newMetrics registers the metrics with r, if r is not nil.
func newMetrics(r prometheus.Registerer) *metrics {
	calls := register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_transport_requests_total",
		Help: "Rate limit requests answered, by the protocol they came over and the gRPC code of the answer; a denial is OK.",
	}, []string{"protocol", "code"}))
	by := func(protocol string) answered {
		a := answered{}
		for _, c := range []codes.Code{
			codes.OK, codes.InvalidArgument, codes.Unavailable, codes.Internal, codes.Canceled, codes.DeadlineExceeded,
		} {
			a[c] = calls.WithLabelValues(protocol, c.String())
		}
		return a
	}
	return &metrics{
		connections: register(r, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ratelimitd_transport_connections",
			Help: "Open connections to the gRPC port.",
		})),
		panics: register(r, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_transport_panics_total",
			Help: "Panics in handlers, each answered with INTERNAL: bugs.",
		})),
		grpc: by("grpc"),
		http: by("http"),
	}
}

// register registers c with r and returns it, or the one like it that was registered before.
func register[T prometheus.Collector](r prometheus.Registerer, c T) T {
	if r == nil {
		return c
	}
	err := r.Register(c)
	if already := (prometheus.AlreadyRegisteredError{}); errors.As(err, &already) {
		if have, ok := already.ExistingCollector.(T); ok {
			return have
		}
	}
	if err != nil {
		panic(err) // a name of ours taken by something else: a bug in whoever wired the process
	}
	return c
}

// countingListener counts the connections it hands out.
type countingListener struct {
	net.Listener
	open prometheus.Gauge
}

// Accept implements net.Listener.
func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Inc()
	return &countedConn{Conn: c, closed: sync.OnceFunc(l.open.Dec)}, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
