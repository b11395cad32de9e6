package bucket

import (
	_ "embed" // the Lua files
)

//go:embed state.lua
var stateLua string

//go:embed credit.lua
var creditLua string

//go:embed window.lua
var windowLua string

//go:embed log.lua
var logLua string

// Lua returns the Lua twins of Limit.Take as chunks of one script: local functions take_credit, take_window and take_log
// and the names they share. A script that follows them calls
//
//	allowed, granted, remaining, retry_after, reset_after, delay, tick, changed, ttl = take_F(s, now, c, mode, before)
//
// where s is a list of the numbers of State (empty if absent; changed in place), now is clamped to 0…MaxTime, mode and
// before are those of Ask, and c holds the rest of Ask and the Terms: hits, at_least, tick, max_delay (each clamped and
// not negative, but for hits), n (at least 1), b, d, p, tau, queue (Terms.MaxDelay), sliding, envoy, and around (the
// four starts) for a limit with a calendar only.
func Lua() string { return stateLua + creditLua + windowLua + logLua }
