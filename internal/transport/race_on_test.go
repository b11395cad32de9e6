//go:build race

package transport

// raceEnabled says that the race detector is on, which makes everything some ten times slower.
const raceEnabled = true
