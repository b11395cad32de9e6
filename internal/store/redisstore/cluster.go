package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

const (
	// slotsTimeout bounds a question for the slots to one node.
	slotsTimeout = 500 * time.Millisecond
	// maxLanes is how many shards there may be while the process lives; keys of further ones have no lane of their own.
	maxLanes = 1024
)

// cluster knows which lane takes which slot. Lane 0 takes those that nobody serves, as far as is known. The watch alone
// changes it; reading is safe for concurrent use.
type cluster struct {
	store *Store
	slots atomic.Pointer[[slotCount]*lane]

	members map[string]*lane // of each node's id
	guide   int              // which of the addresses below is asked first
	known   []string         // addresses of nodes, masters and replicas
}

func newCluster(s *Store) *cluster {
	c := &cluster{store: s, members: make(map[string]*lane)}
	nobody := s.addLane("unassigned")
	var slots [slotCount]*lane
	for i := range slots {
		slots[i] = nobody
	}
	c.slots.Store(&slots)
	return c
}

// lane returns the lane of a slot.
func (c *cluster) lane(slot uint16) *lane { return c.slots.Load()[slot] }

// refresh asks who serves which slots, and reports whether that has changed. While a shard is down another node is asked
// each time: the one that was asked may be cut off from the others and know nothing new.
func (c *cluster) refresh(ctx context.Context, down bool) bool {
	asked := append(append([]string{}, c.known...), c.store.redis.Addrs()...)
	if down {
		c.guide++
	}
	var errs []error
	for range asked {
		addr := asked[c.guide%len(asked)]
		slots, err := c.ask(ctx, addr)
		if err == nil {
			c.store.found(nil)
			return c.learn(slots, addr)
		}
		if ctx.Err() != nil {
			c.store.found(ctx.Err())
			return false
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
		c.guide++
	}
	err := fmt.Errorf("ask %d nodes for the slots, all in vain: %w", len(errs), errs[0])
	c.store.found(err)
	c.store.outage.report("slots", err)
	return false
}

// ask asks the node at addr.
func (c *cluster) ask(ctx context.Context, addr string) ([]redis.ClusterSlot, error) {
	ctx, cancel := context.WithTimeout(ctx, slotsTimeout)
	defer cancel()
	slots, err := c.store.nodes.get(addr).client.ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS, said to replace it, is not there before Redis 7
	if err == nil && len(slots) == 0 {
		err = errors.New("knows no slots")
	}
	return slots, err
}

// learn takes over what a node said of the slots.
func (c *cluster) learn(ranges []redis.ClusterSlot, from string) (changed bool) {
	s := c.store
	nobody := s.lanes.first()
	var slots [slotCount]*lane
	for i := range slots {
		slots[i] = nobody
	}
	c.known = c.known[:0]
	lanes := make(map[string]*lane) // by the id of a master
	taken := make(map[*lane]bool)
	used := make(map[*node]bool)
	for _, r := range ranges {
		if len(r.Nodes) == 0 || r.Nodes[0].Addr == "" || r.Start < 0 || r.End >= slotCount {
			continue
		}
		master := r.Nodes[0]
		l := lanes[master.ID]
		if l == nil {
			if l = c.laneOf(r.Nodes, taken); l == nil {
				continue
			}
			lanes[master.ID], taken[l] = l, true
			changed = s.lead(l, beside(master.Addr, from)) || changed
			used[l.node.Load()] = true
			for _, n := range r.Nodes {
				c.known = append(c.known, beside(n.Addr, from))
			}
		}
		for i := r.Start; i <= r.End; i++ {
			slots[i] = l
		}
	}
	// Only now: who moved from one shard to another was looked up as it was before.
	for _, r := range ranges {
		for _, n := range r.Nodes {
			if l := lanes[r.Nodes[0].ID]; l != nil {
				c.members[n.ID] = l
			}
		}
	}
	for _, l := range s.lanes.all()[1:] {
		l.choose(&slots)
		used[l.node.Load()] = true
	}
	changed = changed || *c.slots.Load() != slots
	if changed {
		c.slots.Store(&slots)
	}
	s.nodes.keep(used)
	return changed
}

// laneOf returns the lane of the shard that nodes are, the master first, made if none of them was seen before; nil if
// there are too many.
func (c *cluster) laneOf(nodes []redis.ClusterNode, taken map[*lane]bool) *lane {
	for _, n := range nodes {
		if l := c.members[n.ID]; l != nil && !taken[l] {
			return l
		}
	}
	number := len(c.store.lanes.all())
	if number == maxLanes {
		return nil
	}
	return c.store.addLane("shard-" + strconv.Itoa(number))
}

// choose gives the lane a key to probe by, in one of its slots.
func (l *lane) choose(slots *[slotCount]*lane) {
	if key := l.probe.Load(); key != nil && slots[slotOfName(*key)] == l {
		return
	}
	for i := range 16 * slotCount { // as good as never reached by a shard with a slot
		if key := "rl1:{probe" + strconv.Itoa(i) + "}"; slots[slotOfName(key)] == l {
			l.probe.Store(&key)
			return
		}
		if i == 1000 && !l.serves(slots) {
			break
		}
	}
	l.probe.Store(nil)
}

// serves reports whether any slot is the lane's.
func (l *lane) serves(slots *[slotCount]*lane) bool {
	for _, at := range slots {
		if at == l {
			return true
		}
	}
	return false
}

// Shard returns the number of the shard that takes c, 0…1023: always 0 without a Cluster, and in one 0 for slots that
// nobody serves, as far as is known. It does not block or allocate.
func (s *Store) Shard(c *store.Charge) int {
	if s.cluster == nil {
		return 0
	}
	return s.cluster.lane(slotOf(&c.Key)).number
}

// Name returns the name of a shard: "redis" without a Cluster; in one "unassigned" for 0 and else "shard-N". The log says
// which master a shard has whenever that changes.
func (s *Store) Name(shard int) string {
	if lanes := s.lanes.all(); shard < len(lanes) {
		return lanes[shard].name
	}
	return "shard-" + strconv.Itoa(shard)
}
