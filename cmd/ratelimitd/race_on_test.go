//go:build race

package main

// raceEnabled says that the tests run under the race detector, which is several times slower.
const raceEnabled = true
