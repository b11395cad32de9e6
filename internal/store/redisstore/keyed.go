package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// readyWithin bounds how long what is no decision waits for a topology that is not known yet, as at the start.
const readyWithin = time.Second

// laneFor returns the lane of a key that is no bucket's, once it is known where the masters are.
func (s *Store) laneFor(ctx context.Context, key string) *lane {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	_ = s.Ready(ctx) // what is sent nowhere says so itself
	if s.cluster == nil {
		return s.lanes.first()
	}
	return s.cluster.lane(slotOfName(key))
}

// do sends a command to a lane, and again where a Cluster says that it belongs elsewhere.
func (s *Store) do(ctx context.Context, l *lane, args ...any) (any, error) {
	at, asking := l.node.Load(), false
	if at == nil {
		return nil, s.nowhere()
	}
	for hop := 0; ; hop++ {
		cmd := redis.NewCmd(ctx, args...)
		if asking {
			pipe := at.client.Pipeline()
			_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "asking"))
			_ = pipe.Process(ctx, cmd)
			_, _ = pipe.Exec(ctx) // the command has its own error
		} else {
			_ = at.client.Process(ctx, cmd)
		}
		reply, err := cmd.Result()
		if err == nil || s.cluster == nil || hop == hops {
			return reply, err
		}
		if addr, ok := redis.IsMovedError(err); ok {
			s.stir()
			at, asking = s.nodes.get(beside(addr, at.addr)), false
		} else if addr, ok := redis.IsAskError(err); ok {
			at, asking = s.nodes.get(beside(addr, at.addr)), true
		} else {
			return reply, err
		}
	}
}

// run runs a script by its hash, with its body only if the server does not know it: the one case in which a call is sent
// twice, since the first ran nothing.
func (s *Store) run(ctx context.Context, l *lane, hash, body, key string, args ...any) (any, error) {
	all := append([]any{"evalsha", hash, 1, key}, args...)
	reply, err := s.do(ctx, l, all...)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		all[0], all[1] = "eval", body
		reply, err = s.do(ctx, l, all...)
	}
	return reply, err
}
