package main

import (
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimitd/ratelimitd/internal/bench/floor"
)

// serveFloor is the floor's process: its service, and the runtime's metrics, from which allocations are read.
func serveFloor(addr, metricsAddr string) error {
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
	go func() { failed <- floor.New().Serve(l) }()
	return <-failed // it is ended by a signal
}
