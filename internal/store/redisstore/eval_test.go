package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// eval runs the script on all keys and requests given, as a batch does.
func (s *Store) eval(ctx context.Context, keys int, keysAndArgs []any) ([]int64, error) {
	client := s.lanes.first().node.Load().client
	args := append([]any{"evalsha", scriptHash, keys}, keysAndArgs...)
	cmd := redis.NewIntSliceCmd(ctx, args...)
	err := client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", script
		cmd = redis.NewIntSliceCmd(ctx, args...)
		err = client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}
