package redistest

import (
	"net"
	"strings"
	"testing"
	"time"
)

// Cluster is a Redis Cluster whose slots are spread evenly over its masters. A master that is gone for two seconds is
// replaced by its replica; the others go on meanwhile. Made by StartCluster.
type Cluster struct {
	Masters  []*Server
	Replicas []*Server // of the master of the same index
}

// StartCluster starts a cluster of masters, each with a replica if replicas is true, and returns once all nodes agree. Some
// more servers that serve no slot may be asked for; they come last in Masters.
func StartCluster(t testing.TB, setup Setup, masters, more int, replicas bool, args ...string) *Cluster {
	t.Helper()
	start := func() *Server {
		_, bus, err := net.SplitHostPort(freeAddr(t))
		if err != nil {
			t.Fatal(err)
		}
		return StartWith(t, setup, append(args,
			"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "2000",
			"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")...)
	}
	c := new(Cluster)
	for range masters + more {
		c.Masters = append(c.Masters, start())
	}
	if replicas {
		for range masters {
			c.Replicas = append(c.Replicas, start())
		}
	}
	all := append(append([]*Server{}, c.Masters...), c.Replicas...)
	for i, s := range c.Masters[:masters] {
		s.do("cluster", "addslotsrange", i*16384/masters, (i+1)*16384/masters-1)
	}
	for i, s := range all {
		s.do("cluster", "set-config-epoch", i+1)
		for _, other := range all[:i] {
			host, port, err := net.SplitHostPort(other.Addr)
			if err != nil {
				t.Fatal(err)
			}
			s.do("cluster", "meet", host, port, other.busPort())
		}
	}
	Await(t, 30*time.Second, "nodes that know each other", func() bool {
		return c.each(all, func(nodes string) bool {
			return strings.Count(nodes, "\n") == len(all) && !strings.Contains(nodes, "handshake") && strings.Count(nodes, " connected") == len(all)
		})
	})
	for i, r := range c.Replicas {
		r.do("cluster", "replicate", c.Masters[i].ID())
	}
	Await(t, 30*time.Second, "a cluster that is complete", func() bool {
		for _, r := range c.Replicas {
			if !strings.Contains(r.Client().Info(t.Context(), "replication").Val(), "master_link_status:up") {
				return false
			}
		}
		return c.ok(all)
	})
	return c
}

// each reports whether ok holds of what every node says of all.
func (c *Cluster) each(all []*Server, ok func(nodes string) bool) bool {
	for _, s := range all {
		if !ok(s.Client().ClusterNodes(s.t.Context()).Val()) {
			return false
		}
	}
	return true
}

// ok reports whether every node finds the cluster well, and tells of every replica.
func (c *Cluster) ok(all []*Server) bool {
	for _, s := range all {
		//nolint:staticcheck // what clients ask
		slots, _ := s.Client().ClusterSlots(s.t.Context()).Result() // none on an error
		told := 0
		for _, r := range slots {
			told += len(r.Nodes) - 1
		}
		if told != len(c.Replicas) {
			return false
		}
		if !strings.Contains(s.Client().ClusterInfo(s.t.Context()).Val(), "cluster_state:ok") {
			return false
		}
	}
	return true
}

// URL returns redis-cluster://host:port,… with all nodes.
func (c *Cluster) URL() string {
	return "redis-cluster://" + addrs(append(append([]*Server{}, c.Masters...), c.Replicas...))
}

// Move moves a slot from one master to another, key by key, calling between, unless it is nil, before each step.
func (c *Cluster) Move(slot int, from, to *Server, between func()) {
	step := func(s *Server, args ...any) {
		if between != nil {
			between()
		}
		s.do(args...)
	}
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		to.t.Fatal(err)
	}
	step(to, "cluster", "setslot", slot, "importing", from.ID())
	step(from, "cluster", "setslot", slot, "migrating", to.ID())
	for {
		keys, err := from.Client().ClusterGetKeysInSlot(from.t.Context(), slot, 10).Result()
		if err != nil {
			from.t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			step(from, "migrate", host, port, key, 0, 5000)
		}
	}
	step(to, "cluster", "setslot", slot, "node", to.ID())
	step(from, "cluster", "setslot", slot, "node", to.ID())
}

// ID returns the node's id in its cluster.
func (s *Server) ID() string {
	s.t.Helper()
	id, err := s.Client().Do(s.t.Context(), "cluster", "myid").Text()
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

func (s *Server) busPort() string {
	for i, a := range s.args {
		if a == "--cluster-port" {
			return s.args[i+1]
		}
	}
	return ""
}

func (s *Server) do(args ...any) {
	s.t.Helper()
	if err := s.Client().Do(s.t.Context(), args...).Err(); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}
