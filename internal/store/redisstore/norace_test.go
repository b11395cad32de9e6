//go:build !race

package redisstore_test

// raceEnabled says that everything takes ten times as long.
const raceEnabled = false
