//go:build race

package rule

const raceEnabled = true
