package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
)

const (
	// secretKey has the form of no bucket's key.
	secretKey = "rl1:key-secret"
	secretLen = 32
)

// Secret returns the secret that all nodes on this Redis derive keys under, 32 random bytes, creating it if there is
// none. It has no expiry: a new one is a new set of buckets. It waits no longer than ctx says, a second for a
// topology that is not known yet, and twice the timeout and 50 ms for each of its two calls.
func (s *Store) Secret(ctx context.Context) ([]byte, error) {
	fresh := make([]byte, secretLen)
	_, _ = rand.Read(fresh) // never errs
	if _, err := s.do(ctx, s.laneFor(ctx, secretKey), "setnx", secretKey, fresh); err != nil {
		return nil, fmt.Errorf("create the key secret in redis: %w", err)
	}
	reply, err := s.do(ctx, s.laneFor(ctx, secretKey), "get", secretKey)
	if err != nil {
		return nil, fmt.Errorf("read the key secret in redis: %w", err)
	}
	secret, _ := reply.(string)
	if len(secret) < secretLen {
		return nil, fmt.Errorf("key secret in redis at %q: got %d bytes, want %d", secretKey, len(secret), secretLen)
	}
	return []byte(secret), nil
}
