// Package store is the contract of taking charges: what a caller asks of buckets and what it is told.
//
// It hides nothing but names the words that memory, Redis and the limiter share: Charge, Decision, Store. Its
// implementations live below it (memstore, redisstore) and must pass storetest.Run.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// ErrUnavailable is returned by Take when at least one charge could not be paid at all; its Decision says so by
// its Origin. The other decisions hold.
var ErrUnavailable = errors.New("store unavailable")

// ErrUnsent is the ErrUnavailable of a request of which surely nothing was applied: whoever answered it otherwise may
// still settle it here later.
var ErrUnsent = fmt.Errorf("not applied: %w", ErrUnavailable)

// MaxCharges is the most charges one request may make. The engine refuses a larger request with no state I/O.
const MaxCharges = 128

// Store takes charges. Implementations are safe for concurrent use.
type Store interface {
	// Take evaluates the charges of one request in order, each on what the earlier left, decides admission from all
	// their votes, books what is to be booked, and writes one Decision a charge to out, whose length is that of
	// charges: "One request" of bucket/SPEC.md is the law. It keeps neither slice. It returns by ctx's deadline; it
	// returns nil, or an error that wraps ErrUnavailable and then has set Origin to Unavailable where a charge was not
	// paid. A charge may have been applied although Unavailable, unless the error is ErrUnsent; it is never sent again.
	Take(ctx context.Context, charges []Charge, out []Decision) error
}

// Charge is what a request asks of one bucket.
type Charge struct {
	Key      Key
	Limit    *bucket.Limit
	Policy   *bucket.Policy
	Hits     int64         // > 0 a cost, 0 a peek ("would one hit pass?"), < 0 hits given back
	AtLeast  int64         // the smallest partial grant, 1…Hits; 0 means Hits, all or nothing
	Tick     int64         // when Hits < 0: the Tick of the Decision given back; 0 a refund from outside, in the current window
	MaxDelay time.Duration // for a limit with a queue: the longest wait this caller accepts, at most the limit's own
	Vote     Vote
	Book     Book
}

// Vote says what a refused charge does to its request. VoteEnforce refuses the request; VoteNone (shadow) changes nothing; any
// larger value is a quota group, which refuses only if all charges of that group are refused. Groups are numbered within one request.
type Vote uint8

// The votes; VoteQuota+n is group n, n ≤ 127.
const (
	VoteEnforce Vote = iota
	VoteNone
	VoteQuota
)

// Book says when a charge is written.
type Book uint8

// The bookings.
const (
	BookIfAdmitted  Book = iota // if the request is admitted and the charge itself fits
	BookAlways                  // a report on a limit with debt: also when refused, down to the debt
	BookWhenRefuses             // profile envoy: if the request is admitted, or if this charge is one that refuses it
)

// Origin says where a decision was paid. The zero value is FromStore.
type Origin uint8

// The origins.
const (
	FromStore Origin = iota
	FromLease
	FromLocal
	FromDeniedCache
	Unavailable // not paid: no decision could be had
)

// Decision is the answer to one Charge.
type Decision struct {
	Allowed    bool          // whether this charge fits, whatever became of its request; for a peek, whether one hit would
	Granted    int64         // hits booked now (negative: given back); 0 for a peek and for what was not booked
	Remaining  int64         // whole hits in hand after what was booked, 0…bucket.MaxHits
	RetryAfter time.Duration // 0 if Allowed; else the first wait after which the same charge fits if nobody else comes; bucket.Never if none
	ResetAfter time.Duration // until full, or until the window's end
	Delay      time.Duration // how long the answer to an admitted charge is to be held (leaky bucket as a queue)
	Tick       int64         // gives this grant back, with Charge.Tick; opaque, never 0 for a booked charge
	Origin     Origin
}

// Unpaid returns the decision of a charge that could not be paid: Unavailable, allowed as its failure mode says. A nil
// Policy is the zero one, which fails open.
func Unpaid(c *Charge) Decision {
	return Decision{Allowed: c.Policy == nil || c.Policy.OnFailure == bucket.FailOpen, Origin: Unavailable}
}

// Admitted reports whether a request passes: no enforced charge is refused, and no quota group is refused whole. An
// Unavailable decision counts by its Allowed, which its giver sets by the charge's failure mode.
func Admitted(charges []Charge, decisions []Decision) bool {
	var over, room [2]uint64 // a bit a quota group
	for i := range charges {
		v := charges[i].Vote
		switch {
		case v == VoteNone:
		case v >= VoteQuota:
			g := uint(v - VoteQuota)
			if decisions[i].Allowed {
				room[g/64&1] |= 1 << (g % 64)
			} else {
				over[g/64&1] |= 1 << (g % 64)
			}
		case !decisions[i].Allowed:
			return false
		}
	}
	return over[0]&^room[0] == 0 && over[1]&^room[1] == 0
}
