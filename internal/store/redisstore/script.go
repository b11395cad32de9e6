package redisstore

import (
	"crypto/sha1"
	_ "embed" // the Lua files
	"encoding/hex"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

//go:embed buckets.lua
var bucketsLua string

//go:embed take.lua
var takeLua string

// script is the one script there is. No value ever enters its text, so that Redis compiles it once.
var script = bucket.Lua() + bucketsLua + takeLua

var scriptHash = hashOf(script)

// hashOf returns what Redis calls a script: SHA-1 is a name here, not a protection.
func hashOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}
