//go:build !race

package engine_test

// raceEnabled says that the race detector is on: it allocates, and makes everything some ten times slower.
const raceEnabled = false
