//go:build race

package store

// tuples is how many requests must have distinct keys; watched for races, each takes ten times as long.
const tuples = 100_000

// raceEnabled says that the race detector is on: it has pools forget.
const raceEnabled = true
