package limiter

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Nodes is how many nodes share the limits now, which decides each one's part of a limit while the store is away. Safe
// for concurrent use; made by NewNodes.
type Nodes struct {
	static bool
	count  atomic.Int64 // 0: never learnt
	warn   sync.Once
	logger *slog.Logger
}

// NewNodes returns a count that is static if it is at least 1, and else is to be learnt. It registers its gauges
// with reg, unless that is nil; a nil logger is slog.Default().
func NewNodes(static int, reg prometheus.Registerer, logger *slog.Logger) *Nodes {
	if logger == nil {
		logger = slog.Default()
	}
	n := &Nodes{static: static >= 1, logger: logger}
	n.count.Store(int64(max(0, static)))
	if reg != nil {
		reg.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "ratelimitd_limiter_nodes",
				Help: "Nodes that a limit is divided by while the store is away.",
			}, func() float64 { return float64(max(1, n.count.Load())) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "ratelimitd_limiter_nodes_known",
				Help: "Whether the number of nodes is known, by configuration or by heartbeats: 0 means that 1 is taken for it.",
			}, func() float64 { return float64(min(1, n.count.Load())) }),
		)
	}
	return n
}

// Learn notes the number of nodes that are alive. It is ignored where the number is static, and where it is less than 1:
// the last one is kept.
func (n *Nodes) Learn(count int) {
	if !n.static && count >= 1 {
		n.count.Store(int64(count))
	}
}

// Count returns the number of nodes, at least 1. It warns once if it had to guess.
func (n *Nodes) Count() int64 {
	count := n.count.Load()
	if count == 0 {
		n.warn.Do(func() {
			n.logger.Warn("number of nodes never learnt, each takes itself for the only one", "remedy", "--nodes")
		})
		return 1
	}
	return count
}
