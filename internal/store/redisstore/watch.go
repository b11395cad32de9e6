package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

const (
	// downEvery is how often a shard that is down is tried, and Sentinels are asked where the master is.
	downEvery = 500 * time.Millisecond
	// slotsEvery is how often a Cluster is asked who serves which slots.
	slotsEvery = time.Second
	// stirRest is how long the watch rests before it looks again: what stirs it may come a thousand times a second.
	stirRest = 100 * time.Millisecond
)

// stir has the watch look at once. It does not block.
func (s *Store) stir() {
	select {
	case s.stirred <- struct{}{}:
	default:
	}
}

// watch follows the topology, and tells when something that was down may be back. No request waits for it.
func (s *Store) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.workers.Go(func() {
		<-s.closing
		cancel()
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	var looked time.Time
	down := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.stirred:
			if rest := stirRest - time.Since(looked); rest > 0 {
				timer.Reset(rest)
				continue
			}
		case <-timer.C:
		}
		looked = time.Now()
		changed := s.discover(ctx, down)
		if s.topology.problem.Load() == nil {
			s.topology.once.Do(func() { close(s.topology.known) })
		}
		var back bool
		back, down = s.tryDown(ctx)
		if (changed || back) && ctx.Err() == nil {
			s.notify()
		}
		timer.Reset(s.pause(down))
	}
}

// pause is how long nothing is looked at, if nothing stirs.
func (s *Store) pause(down bool) time.Duration {
	switch kind := s.redis.Kind(); {
	case down || kind == redisconn.Sentinel:
		return downEvery
	case kind == redisconn.Cluster:
		return slotsEvery
	default:
		return time.Hour
	}
}

// discover asks where the masters are and reports whether that has changed.
func (s *Store) discover(ctx context.Context, down bool) bool {
	switch s.redis.Kind() {
	case redisconn.Sentinel:
		addr, err := s.redis.Master(ctx)
		if s.found(err); err != nil {
			s.outage.report("sentinel", err)
			return false
		}
		l := s.lanes.first()
		changed := s.lead(l, addr)
		s.nodes.keep(map[*node]bool{l.node.Load(): true})
		return changed
	case redisconn.Cluster:
		return s.cluster.refresh(ctx, down)
	default:
		return false
	}
}

// topology is whether it is known where the masters are. Safe for concurrent use.
type topology struct {
	known   chan struct{} // closed once it is
	once    sync.Once
	problem atomic.Pointer[error] // why it could not be asked for last; nil: it could
}

// found notes how asking for the masters went. They are pointed to after the first answer, before anybody is told.
func (s *Store) found(err error) {
	if err != nil {
		s.topology.problem.Store(&err)
		return
	}
	s.topology.problem.Store(nil)
}

// nowhere returns the error of what has no master to go to.
func (s *Store) nowhere() error {
	if why := s.topology.problem.Load(); why != nil {
		return fmt.Errorf("%w: %w", errNowhere, *why)
	}
	return errNowhere
}

// Ready waits until it is known where the masters are, or ctx ends: at once without Sentinels and Clusters. It does not ask
// whether they answer.
func (s *Store) Ready(ctx context.Context) error {
	select {
	case <-s.topology.known:
		return nil
	default:
	}
	select {
	case <-s.topology.known:
		return nil
	case <-s.closing:
		return unsent(errClosed)
	case <-ctx.Done():
		return unsent(s.nowhere())
	}
}

// lead points a lane to the node at addr and reports whether it pointed elsewhere.
func (s *Store) lead(l *lane, addr string) bool {
	before := l.node.Load()
	if before != nil && before.addr == addr {
		return false
	}
	l.node.Store(s.nodes.get(addr))
	from := ""
	if before != nil {
		from = before.addr
	}
	s.logger.Info("redis master", "shard", l.name, "address", addr, "before", from)
	return true
}

// tryDown takes a charge at each shard that is down, and reports whether one came back and whether one is still down.
func (s *Store) tryDown(ctx context.Context) (back, down bool) {
	for _, l := range s.lanes.all() {
		if !l.down.Load() || ctx.Err() != nil {
			continue
		}
		began := time.Now()
		within, cancel := context.WithTimeout(ctx, s.ioTimeout())
		err := s.Probe(within, l.number)
		cancel()
		// The first answer may have waited for a connection.
		if err == nil && time.Since(began) > s.timeout {
			began = time.Now()
			within, cancel := context.WithTimeout(ctx, s.ioTimeout())
			err = s.Probe(within, l.number)
			cancel()
		}
		if err != nil || time.Since(began) > s.timeout {
			down = true
			continue
		}
		l.down.Store(false)
		back = true
	}
	return back, down
}
