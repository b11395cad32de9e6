//go:build !race

package store

// tuples is how many requests must have distinct keys.
const tuples = 1_000_000

// raceEnabled says that the race detector is on: it has pools forget.
const raceEnabled = false
