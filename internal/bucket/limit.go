package bucket

import (
	"errors"
	"fmt"
	"time"
)

// MaxHits is the largest number of hits a limit may grant a period: 2^32−1, the width of Envoy's limit_remaining.
const MaxHits = 1<<32 - 1

// MaxCost is dearer than any burst and debt together: 2^33. A larger cost is taken for this one.
const MaxCost = 1 << 33

// MaxLogHits is the most that hits and debt of a SlidingLog may come to, whoever asks for it: it may remember as many
// entries a key, and a store reads and writes all of them at each charge.
const MaxLogHits = 1000

// MaxPeriod is the longest period: ten years of 365 days.
const MaxPeriod = 10 * 365 * day

// maxProduct bounds every product of hits and ticks, so that sums of two stay below 2^53, where a double still counts
// by one: Lua has no other number.
const maxProduct = 1 << 52

// Config describes a limit to New. Only Hits and Unit must be given.
type Config struct {
	Algorithm  Algorithm
	Unit       Unit
	Envoy      bool           // the reference's peek: refused only when more than the limit is used
	Hits       int64          // granted a period, 0…MaxHits; 0 refuses everything
	Multiplier int64          // the period is Multiplier units; 0 means 1; the period is at most MaxPeriod
	Burst      int64          // most hits at one instant (credit family only), 1…MaxHits; 0 means Hits; a queue's length with MaxDelay
	Debt       int64          // how far reports may overdraw, 0…MaxHits; for SlidingLog, Hits+Debt is at most MaxLogHits
	MaxDelay   time.Duration  // LeakyBucket only: the longest wait in its queue, in whole microseconds; 0 means no queue
	Calendar   *time.Location // FixedWindow of a day, week, month or year only: windows begin at midnight there, weeks on Monday; nil means epoch windows
}

// Limit is a valid limit, precomputed. Immutable and safe for concurrent use; made by New only: the zero value is no limit.
// What Take reads comes first and fits a cache line of 64 bytes: among many limits, each line read is waited for.
type Limit struct {
	terms  Terms
	family Family
	c      Config
}

// Terms are the integers that a limit's arithmetic works with, as SPEC.md names them. They are what the Lua twins are
// told of a limit.
type Terms struct {
	N        int64 // hits a period; 0 refuses everything
	B        int64 // credit family: burst in hits
	D        int64 // debt in hits
	P        int64 // period in ticks; with a calendar the nominal period in microseconds
	Tau      int64 // tick in microseconds
	MaxDelay int64 // microseconds; 0 means no queue
	Sliding  bool  // window family: weighs the window before
	Envoy    bool  // the reference's peek
	Calendar bool  // windows begin where Limit.Around says
}

// New returns the limit of c, or an error that says of every wrong field what it holds and what was wanted. The error
// joins one *FieldError a field.
func New(c Config) (*Limit, error) {
	if c.Multiplier == 0 {
		c.Multiplier = 1
	}
	family := c.Algorithm.Family()
	if family == Credit && c.Burst == 0 && c.Hits > 0 {
		c.Burst = c.Hits
	}
	if err := c.validate(family); err != nil {
		return nil, err
	}

	t := Terms{
		N: c.Hits, D: c.Debt, MaxDelay: c.MaxDelay.Microseconds(),
		Sliding: c.Algorithm == SlidingWindow, Envoy: c.Envoy, Calendar: c.Calendar != nil,
	}
	period := c.period().Microseconds()
	most := c.Hits + c.Debt // the most hits that may be multiplied by a period
	if family == Credit {
		t.B = c.Burst
		most = c.Burst + c.Debt
	}
	t.Tau = 1
	// A log keeps microseconds and multiplies nothing; nor does a fixed window on a calendar.
	if family != Log && c.Calendar == nil {
		if t.Tau = tick(period, most); t.Tau == 0 {
			return nil, &FieldError{"period", c.period().String(),
				fmt.Sprintf("too fine for %d hits: choose fewer hits or a rounder period", most)}
		}
	}
	t.P = period / t.Tau
	return &Limit{t, family, c}, nil
}

// tick returns the smallest power of ten of microseconds that divides the period (in microseconds) and keeps
// most × period in ticks within maxProduct; 0 if there is none.
func tick(period, most int64) int64 {
	for tau := int64(1); period%tau == 0; tau *= 10 {
		if most == 0 || period/tau <= maxProduct/most {
			return tau
		}
	}
	return 0
}

func (c *Config) period() time.Duration { return time.Duration(c.Multiplier) * c.Unit.Duration() }

// validate reports every field that is wrong, once defaults are resolved.
func (c *Config) validate(family Family) error {
	var errs []error
	wrong := func(field string, value any, want string) {
		errs = append(errs, &FieldError{field, fmt.Sprint(value), want})
	}
	if int(c.Algorithm) >= len(algorithmNames) {
		wrong("algorithm", uint8(c.Algorithm), "unknown")
	}
	if c.Hits < 0 || c.Hits > MaxHits {
		wrong("hits", c.Hits, "must be 0…4294967295")
	}
	if c.Debt < 0 || c.Debt > MaxHits {
		wrong("debt", c.Debt, "must be 0…4294967295")
	}
	switch {
	case family != Credit && c.Burst != 0:
		wrong("burst", c.Burst, "only token_bucket, gcra and leaky_bucket have one")
	case c.Burst < 0 || c.Burst > MaxHits:
		// Without hits the burst is 0 too: such a limit refuses everything.
		wrong("burst", c.Burst, "must be 1…4294967295")
	}
	if family == Log && c.Hits <= MaxHits && c.Debt <= MaxHits && c.Hits+c.Debt > MaxLogHits {
		wrong("hits", c.Hits, fmt.Sprintf("sliding_log remembers every hit: hits + debt must be at most %d", MaxLogHits))
	}
	unit := c.Unit.Duration()
	switch {
	case unit == 0:
		wrong("unit", c.Unit, "must be second, minute, hour, day, week, month or year")
	case c.Multiplier < 1 || c.Multiplier > int64(MaxPeriod/unit):
		wrong("multiplier", c.Multiplier, fmt.Sprintf("must be 1…%d for a %s: a period is at most 10 years", MaxPeriod/unit, c.Unit))
	}
	switch {
	case c.MaxDelay == 0:
	case c.Algorithm != LeakyBucket:
		wrong("max_delay", c.MaxDelay, "only leaky_bucket has one")
	case c.MaxDelay < time.Microsecond || c.MaxDelay > MaxPeriod || c.MaxDelay%time.Microsecond != 0:
		wrong("max_delay", c.MaxDelay, "must be whole microseconds, at most 10 years")
	}
	if c.Calendar != nil && (c.Algorithm != FixedWindow || c.Unit < Day) {
		wrong("calendar", c.Calendar, "only a fixed_window of days, weeks, months or years follows one")
	}
	return errors.Join(errs...)
}

// FieldError says which field of a Config is wrong.
type FieldError struct {
	Field string // in the words of rules: algorithm, hits, unit, multiplier, burst, debt, max_delay, calendar; or period
	Value string // what it holds
	Want  string // what was wanted
}

// Error returns "field value: what was wanted".
func (e *FieldError) Error() string { return e.Field + " " + e.Value + ": " + e.Want }

// Config returns the limit's configuration with every default resolved: Multiplier is at least 1, and Burst is what a
// limit of the credit family holds. New of it is an equal limit.
func (l *Limit) Config() Config { return l.c }

// Period returns the length of the period; with a calendar, the nominal one (a month is 30 days).
func (l *Limit) Period() time.Duration {
	return time.Duration(l.terms.P*l.terms.Tau) * time.Microsecond
}

// MaxDelay returns the longest wait in the limit's queue; 0: it has none.
func (l *Limit) MaxDelay() time.Duration { return time.Duration(l.terms.MaxDelay) * time.Microsecond }

// Family returns the family of the limit's algorithm.
func (l *Limit) Family() Family { return l.family }

// Terms returns the integers of the limit's arithmetic.
func (l *Limit) Terms() Terms { return l.terms }

// Tick returns the length of the limit's tick: its waits are multiples of it, less what has passed of the current one.
func (l *Limit) Tick() time.Duration { return time.Duration(l.terms.Tau) * time.Microsecond }
