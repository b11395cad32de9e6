package redisstore

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

const clusterKind = redisconn.Cluster

// A node is one server.
type node struct {
	addr   string
	client *redis.Client
	unused time.Time // since when no lane has led here; zero: one does. Guarded by nodes.mu
}

// nodes are the servers that there are connections to. Safe for concurrent use.
type nodes struct {
	open func(addr string) *redis.Client

	mu     sync.Mutex
	byAddr map[string]*node
}

// dial returns a client of one server.
func (s *Store) dial(addr string) *redis.Client {
	o := s.redis.Node(addr)
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = s.ioTimeout(), s.ioTimeout(), s.ioTimeout()
	o.PoolSize = s.tuning.senders + 2 // Ping and Secret never wait for a sender's connection
	if s.redis.Kind() == clusterKind {
		o.PoolSize = 3*s.tuning.senders + 2 // other lanes' senders are sent here, too
	}
	return redis.NewClient(o)
}

// get returns the node at addr.
func (n *nodes) get(addr string) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at := n.byAddr[addr]; at != nil {
		if !at.unused.IsZero() {
			at.unused = time.Now()
		}
		return at
	}
	if n.byAddr == nil {
		n.byAddr = make(map[string]*node)
	}
	at := &node{addr: addr, client: n.open(addr), unused: time.Now()}
	n.byAddr[addr] = at
	return at
}

// keepUnused is for how long a node that no lane leads to keeps its connections: longer than any call is under way.
const keepUnused = 10 * time.Second

// keep notes which nodes lanes lead to, and closes those that none has led to for a while.
func (n *nodes) keep(used map[*node]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for addr, at := range n.byAddr {
		switch {
		case used[at]:
			at.unused = time.Time{}
		case at.unused.IsZero():
			at.unused = time.Now()
		case time.Since(at.unused) > keepUnused:
			delete(n.byAddr, addr)
			_ = at.client.Close() // nothing is under way
		}
	}
}

func (n *nodes) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, at := range n.byAddr {
		errs = append(errs, at.client.Close())
	}
	return errors.Join(errs...)
}

// beside returns addr, which the node at asked has told: a host that it does not know is its own.
func beside(addr, asked string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != "" && host != "?" {
		return addr
	}
	own, _, err := net.SplitHostPort(asked)
	if err != nil {
		return addr
	}
	return net.JoinHostPort(own, port)
}
