package redisstore

import (
	"context"
	_ "embed" // nodes.lua
	"fmt"
	"time"
)

//go:embed nodes.lua
var nodesScript string

var nodesHash = hashOf(nodesScript)

const (
	// nodesKey has the form of no bucket's key.
	nodesKey = "rl1:nodes"
	// NodesEvery is how often Nodes is to be called.
	NodesEvery = 3 * time.Second
	// aliveFor is how long a node counts after it was last heard of: it may miss two beats.
	aliveFor = 10 * time.Second
)

// Nodes tells Redis that this store is in use, and returns how many are, this one included. A store counts for 10 s after its
// call, by the clock of Redis, so Nodes is called every NodesEvery. It waits no longer than ctx says, a second
// for a topology that is not known yet, and twice the timeout and 50 ms.
func (s *Store) Nodes(ctx context.Context) (int, error) {
	n, err := s.beat(ctx, aliveFor)
	if err != nil {
		return 0, fmt.Errorf("count nodes in redis: %w", err)
	}
	return n, nil
}

// Leave has this store count no more, until Nodes is called again.
func (s *Store) Leave(ctx context.Context) error {
	if _, err := s.beat(ctx, 0); err != nil {
		return fmt.Errorf("leave redis: %w", err)
	}
	return nil
}

func (s *Store) beat(ctx context.Context, alive time.Duration) (int, error) {
	reply, err := s.run(ctx, s.laneFor(ctx, nodesKey), nodesHash, nodesScript, nodesKey, s.name[:], alive.Milliseconds())
	if err != nil {
		return 0, err
	}
	n, ok := reply.(int64)
	if !ok {
		return 0, fmt.Errorf("reply of the script: got %T, want a number", reply)
	}
	return int(n), nil
}
