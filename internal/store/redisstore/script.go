package redisstore

import (
	"crypto/sha1"
	_ "embed" // take.lua
	"encoding/hex"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

//go:embed take.lua
var takeLua string

// script is the one script there is. No value ever enters its text, so that Redis compiles it once.
var script = bucket.Lua() + takeLua

// scriptHash is what Redis calls it: SHA-1 is a name here, not a protection.
var scriptHash = func() string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}()
