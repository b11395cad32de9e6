package store

import (
	"crypto/hmac"
	"crypto/sha256"
)

// Spaced returns the secret of a key space: of the same secret and another name it is another one, so that deployments
// which share a Redis, and its secret, share no bucket. "" names the space of those who say nothing, whose secret is the
// one given.
func Spaced(secret []byte, space string) []byte {
	if space == "" {
		return secret
	}
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("key space"))
	h.Write([]byte(space))
	return h.Sum(nil)
}
