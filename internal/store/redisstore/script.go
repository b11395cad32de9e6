package redisstore

import (
	"crypto/sha1"
	_ "embed" // the Lua files
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

//go:embed buckets.lua
var bucketsLua string

//go:embed take.lua
var takeLua string

// script is the one script there is. No value ever enters its text, so that Redis compiles it once.
var script = inline(bucket.Lua() + bucketsLua + takeLua)

var scriptHash = hashOf(script)

// hashOf returns what Redis calls a script: SHA-1 is a name here, not a protection.
func hashOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

var (
	constants = regexp.MustCompile(`(?m)^local ([A-Z_]+(?:, [A-Z_]+)*) = (.*?)(?: --.*)?$`)
	constant  = regexp.MustCompile(`\b[A-Z_]+\b`)
)

// inline writes the constants of a script, its locals in capitals, out where they are used. Each run of a script makes its
// functions anew, and finds for each the locals that it names: for constants alone, a seventh of a run of one charge.
func inline(script string) string {
	values := make(map[string]string)
	script = constants.ReplaceAllStringFunc(script, func(line string) string {
		parts := constants.FindStringSubmatch(line)
		texts := strings.Split(parts[2], ", ")
		for i, name := range strings.Split(parts[1], ", ") {
			values[name] = "(" + texts[i] + ")"
		}
		return ""
	})
	return constant.ReplaceAllStringFunc(script, func(name string) string {
		if value, ok := values[name]; ok {
			return value
		}
		return name
	})
}
