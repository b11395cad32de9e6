package bucket

import "time"

// MaxTime is the last instant, in microseconds since the Unix epoch (in the year 2219): time stands still there, so that
// sums with it stay below 2^53. What would happen later never does.
const MaxTime = 1<<53 - 1<<50

// Micros returns t in microseconds since the Unix epoch, clamped to 0…MaxTime, as Take wants it.
func Micros(t time.Time) int64 { return clampTime(t.UnixMicro()) }

func clampTime(now int64) int64 { return max(0, min(now, MaxTime)) }

// Never is the wait of a charge that no amount of waiting would admit.
const Never = time.Duration(-1)

// never is Never in an Outcome's microseconds.
const never = -1

// Wait returns a wait of an Outcome as a duration: microseconds, or Never.
func Wait(micros int64) time.Duration {
	if micros == never {
		return Never
	}
	return time.Duration(micros) * time.Microsecond
}

// State is one bucket's memory. The zero value is an absent bucket, which is a full one.
//
// Words holds what SPEC.md lists for the family, in its order: credit {level, t, P, τ, D}, window {cur, prev, P, τ,
// start}; for a log they are zero and Log holds the entries, oldest first. Any numbers may stand there: impossible ones
// read as absent.
type State struct {
	Words [5]int64
	Log   []Entry
}

// Entry is what a log remembers: hits taken at one instant.
type Entry struct {
	Time int64 // microseconds since the Unix epoch
	Hits int64 // at least 1
}

// Absent reports whether the state is that of an absent bucket, which a store deletes rather than writes.
func (s *State) Absent() bool { return s.Words == [5]int64{} && len(s.Log) == 0 }

// Mode says what of an Ask with positive hits is booked. An Ask for hits back is booked in every mode but Look.
type Mode uint8

// The modes.
const (
	Look   Mode = iota // nothing
	Fit                // all of it if it fits, else nothing
	Report             // all of it if it fits, else as much as the debt allows
	Count              // all of it if it fits, else what is in hand, and one past the limit if Config.Envoy in the window and log families
)

// Ask is what is asked of one bucket.
type Ask struct {
	Hits     int64 // > 0 a cost, 0 a peek ("would one hit pass?"), < 0 hits given back; clamped to ±MaxCost
	AtLeast  int64 // the smallest partial grant, 1…Hits; 0 means Hits, all or nothing
	Tick     int64 // when Hits < 0: the Tick of the Outcome given back; 0 for a refund from outside
	MaxDelay int64 // for a limit with a queue: the longest delay accepted, in microseconds, at most the limit's own; 0 means none
	Before   int64 // hits that the same request would take first and that the state does not show; they count as needed too
	Mode     Mode
}

// Outcome answers an Ask. Its waits are microseconds.
type Outcome struct {
	Allowed    bool  // whether the charge fits; for a peek, whether one hit would
	Changed    bool  // whether the state is to be written, or deleted if it is absent now
	Granted    int64 // hits booked; negative: given back, the last one perhaps in part
	Remaining  int64 // whole hits in hand after what was booked, 0…MaxHits
	RetryAfter int64 // 0 if Allowed; else the first wait after which the same charge fits if nobody else comes; −1 if none
	ResetAfter int64 // until full (credit, log), or until the window's end
	Delay      int64 // how long an allowed charge is to be held back (queue)
	Tick       int64 // gives this grant back; 0 if nothing was booked
	TTL        int64 // when Changed: how long the state matters, at least 1; 0 if it is absent now
}

// Take asks a of the bucket s under l at now, in microseconds since the Unix epoch (clamped to 0…MaxTime), and changes s
// if the Outcome says Changed. It does not allocate, but for a log that grows; it writes to the entries of s.Log in place.
// A bucket that a limit of the same family with other numbers left is understood: see SPEC.md, Change of a limit.
func (l *Limit) Take(s *State, now int64, a Ask) Outcome {
	if l.terms.N == 0 {
		return Outcome{RetryAfter: never}
	}
	now = clampTime(now)
	a.Hits = max(-MaxCost, min(a.Hits, MaxCost))
	switch l.family {
	case Window:
		return l.window(s, now, a)
	case Log:
		return l.log(s, now, a)
	default:
		return l.credit(s, now, a)
	}
}

// need returns the hits that must be in hand for a to fit.
func (l *Limit) need(a Ask) int64 {
	switch {
	case a.Hits == 0 && l.terms.Envoy:
		return a.Before
	case a.Hits == 0:
		return 1 + a.Before
	case a.AtLeast > 0:
		return min(a.AtLeast, a.Hits) + a.Before
	default:
		return a.Hits + a.Before
	}
}

// backstep is how far a clock may step back, in microseconds, and be taken for one that stands still.
const backstep = 1_000_000

// ceil returns ⌈a/b⌉ for a ≥ 0 and b ≥ 1.
func ceil(a, b int64) int64 { return (a + b - 1) / b }
