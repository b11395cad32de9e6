package main

import (
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimitd/ratelimitd/internal/bench/floor"
	"github.com/ratelimitd/ratelimitd/internal/transport"
)

// bareGC lets as much garbage gather in gRPC alone as in ours: 128 MiB, on a heap below 4 MiB.
const bareGC = 3200

// serveFloor is a floor's process: its service, and the runtime's metrics, from which allocations are read.
func serveFloor(name, addr, metricsAddr string) error {
	server := floor.New()
	if name == bareName {
		debug.SetGCPercent(bareGC)
		var err error
		if server, err = floor.NewBare(transport.Tuning()...); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector())
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	failed := make(chan error, 2)
	metrics := &http.Server{Addr: metricsAddr, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { failed <- metrics.ListenAndServe() }()
	go func() { failed <- server.Serve(l) }()
	return <-failed // it is ended by a signal
}
