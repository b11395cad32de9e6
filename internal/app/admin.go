package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimitd/ratelimitd/internal/config"
)

// A page is one path of the admin port and what its list says of it.
type page struct {
	path, help string
	handler    http.Handler
}

// adminPages serves the pages of the admin port, which read and change nothing. The command line (/debug/pprof/cmdline) is not shown, since it may hold a password.
func adminPages(reg *prometheus.Registry, rules *config.Live, rlconfig http.Handler) *http.ServeMux {
	pages := []page{
		{"/metrics", "metrics for Prometheus", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
			Registry: reg, EnableOpenMetrics: true,
		})},
		{"/rlconfig", "the current limits, one a line", rlconfig},
		{"/config", "which version of the rules is current, and what the last load said", configStatus(rules)},
		{"/debug/pprof/", "runtime profiles: heap, goroutine, allocs, block, mutex, …", http.HandlerFunc(pprof.Index)},
		{"/debug/pprof/profile", "CPU profile, of ?seconds=30", http.HandlerFunc(pprof.Profile)},
		{"/debug/pprof/trace", "execution trace, of ?seconds=1", http.HandlerFunc(pprof.Trace)},
	}
	slices.SortFunc(pages, func(a, b page) int { return strings.Compare(a.path, b.path) })

	mux := http.NewServeMux()
	var list strings.Builder
	for _, p := range pages {
		mux.Handle("GET "+p.path, p.handler)
		fmt.Fprintf(&list, "%s: %s\n", p.path, p.help)
	}
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if r.URL.Path != "/" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, list.String())
	})
	return mux
}

// configStatus shows what became of the loads of the rules.
func configStatus(rules *config.Live) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(rules.Status()) // the only error left is the client's connection
	})
}
