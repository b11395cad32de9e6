//go:build race

package e2e_test

// raceFlag builds ratelimitd as the tests were: with the race detector, which ends the program with an error on a race.
var raceFlag = []string{"-race"}
