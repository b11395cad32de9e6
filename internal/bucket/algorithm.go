package bucket

import (
	"fmt"
	"strings"
)

// Algorithm names how a limit counts. The zero value is TokenBucket.
type Algorithm uint8

// The six algorithms, in three families.
const (
	TokenBucket   Algorithm = iota // credit: refills continuously, holds at most the burst
	GCRA                           // credit: the same arithmetic by its other name
	LeakyBucket                    // credit: with MaxDelay a queue that drains at the rate
	FixedWindow                    // window: counts in windows aligned to the epoch or a calendar
	SlidingWindow                  // window: weighs the window before by what is left of it
	SlidingLog                     // log: remembers every hit younger than a period
)

// algorithmNames is indexed by Algorithm.
var algorithmNames = [...]string{
	"token_bucket", "gcra", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log",
}

// String returns the algorithm's name as rules spell it, such as "token_bucket".
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// ParseAlgorithm returns the algorithm with the given name, spelt as String spells it.
func ParseAlgorithm(name string) (Algorithm, error) {
	for a, s := range algorithmNames {
		if s == name {
			return Algorithm(a), nil
		}
	}
	return 0, fmt.Errorf("algorithm %q: want one of %s", name, strings.Join(algorithmNames[:], ", "))
}

// Family is a kind of state. Limits of one family understand each other's buckets; those of two families never share one.
type Family uint8

// The families.
const (
	Credit Family = iota
	Window
	Log
)

// familyNames is indexed by Family.
var familyNames = [...]string{"credit", "window", "log"}

// String returns "credit", "window" or "log".
func (f Family) String() string {
	if int(f) < len(familyNames) {
		return familyNames[f]
	}
	return fmt.Sprintf("family(%d)", uint8(f))
}

// Family returns the family whose state the algorithm keeps.
func (a Algorithm) Family() Family {
	switch a {
	case FixedWindow, SlidingWindow:
		return Window
	case SlidingLog:
		return Log
	default:
		return Credit
	}
}
