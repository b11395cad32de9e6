package redisstore

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// replyLen is how many integers answer a charge.
const replyLen = 7

// spareTTL is how long states outlive their use where decisions follow a clock that Redis does not: it would expire them
// by its own while that one stands still.
const spareTTL = time.Hour

// call is one request on its way through a batch. Its caller packs it and reads its reply; a sender, in between, only
// carries it. Reused, unless its caller left while it was under way.
type call struct {
	charges int
	slot    uint16   // of all its keys, in a Cluster
	keys    []string // one a charge
	request string   // as take.lua reads it
	buf     []byte
	reply   []int64 // replyLen a charge

	state atomic.Int32 // one of waiting, departed, answered, left
	after *store.Late  // of a call that departed and whose caller left: who wants to hear of it
	done  chan error
	timer *time.Timer
	lost  func() // told if hits that are given back, whose answer nobody waits for, may not have come; nil: the caller waits
}

// The states of a call: whoever moves it from waiting decides what becomes of it.
const (
	waiting  = iota // for a sender
	departed        // a sender has it
	answered        // its answer is there, or will be in a moment
	left            // its caller has gone
)

func newCall() *call {
	c := &call{done: make(chan error, 1), timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	return c
}

// reset makes c ready for another request.
func (c *call) reset() { c.state.Store(waiting) }

// depart claims c for a sender; false means that its caller has left and c is not to be sent.
func (c *call) depart() bool { return c.state.CompareAndSwap(waiting, departed) }

// abandon is what a caller does that waits no longer and whose call has not departed; it returns why as an error of the
// store.
func (c *call) abandon(why error) error {
	c.state.Store(left)
	return unsent(why)
}

// late is what a caller does whose time is over; it returns why as an error of the store. What has not departed never will,
// what has is heard of later, and an answer that is there is taken: a process that did not run for a while finds both at once.
func (c *call) late(why error) error {
	if c.withdraw() {
		return unsent(why)
	}
	if c.state.Load() == departed {
		c.after = store.NewLate(unavailable(why))
		if c.state.CompareAndSwap(departed, left) {
			return c.after
		}
		c.after = nil
	}
	return <-c.done
}

// withdraw takes back a call that has not departed, and reports whether that was so.
func (c *call) withdraw() bool { return c.state.CompareAndSwap(waiting, left) }

// abandoned reports whether the caller has left.
func (c *call) abandoned() bool { return c.state.Load() == left }

// finish answers the caller, or whoever wants to hear of a call whose caller has left.
func (c *call) finish(err error) {
	if err != nil && c.lost != nil {
		c.lost()
	}
	if c.state.CompareAndSwap(departed, answered) {
		c.done <- err
		return
	}
	var out []store.Decision
	if err == nil {
		out = make([]store.Decision, c.charges)
		c.decode(out)
	}
	c.after.End(out, err)
}

// A phase is what a call does of its request.
type phase byte

const (
	whole   phase = iota // all: it is decided here and booked
	look                 // it is decided and not booked: what it answers is what holds if the request is refused
	refused              // it was refused elsewhere: what a refused request books is booked
)

// encode packs the charges of a request as take.lua reads them. now is nil for the clock of Redis.
func (c *call) encode(charges []store.Charge, p phase, now func() time.Time) error {
	if len(charges) > store.MaxCharges {
		return fmt.Errorf("%d charges: must be at most %d", len(charges), store.MaxCharges)
	}
	c.charges = len(charges)
	b := c.buf[:0]
	for i := range charges {
		if charges[i].Key.Provisional() {
			return errNoKey
		}
		b = charges[i].Key.Append(b)
	}
	at, spare := int64(0), int64(0) // 0 asks for the clock of Redis
	if now != nil {
		at, spare = max(1, bucket.Micros(now())), spareTTL.Milliseconds()
	}
	b = append7(b, at)
	b = append7(b, spare)
	b = append(b, byte(p))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(charges)))
	for i := range charges {
		b = appendCharge(b, &charges[i], at)
	}
	c.buf = b

	text := string(b) // the one allocation of a request
	c.keys = c.keys[:0]
	for range charges {
		c.keys = append(c.keys, text[:store.KeyLen])
		text = text[store.KeyLen:]
	}
	c.request = text
	return nil
}

// appendCharge appends a charge in the format CHARGE_FORMAT of take.lua. at is the time of the decision in microseconds,
// 0 if it is the clock of Redis.
func appendCharge(b []byte, c *store.Charge, at int64) []byte {
	t := c.Limit.Terms()
	b = append(b, byte(c.Vote), byte(c.Book), familyTag(c.Limit.Family()))
	b = append7(b, clamp(c.Hits, -bucket.MaxCost, bucket.MaxCost))
	b = append7(b, clamp(c.AtLeast, 0, bucket.MaxCost))
	b = append7(b, clamp(c.Tick, -1, maxExact)) // no tick of ours is at either end
	b = append7(b, clamp(c.MaxDelay.Microseconds(), 0, t.MaxDelay))
	b = binary.LittleEndian.AppendUint32(b, uint32(t.N))
	b = binary.LittleEndian.AppendUint32(b, uint32(t.B))
	b = binary.LittleEndian.AppendUint32(b, uint32(t.D))
	b = append7(b, t.P)
	b = append(b, exponent(t.Tau))
	b = append7(b, t.MaxDelay)
	b = append(b, bit(t.Sliding), bit(t.Envoy), bit(t.Calendar))
	if t.Calendar {
		if at == 0 {
			// Our clock only says which windows are near: the script chooses among them by its own.
			at = bucket.Micros(time.Now())
		}
		for _, start := range c.Limit.Around(at) {
			b = append7(b, start)
		}
	}
	return b
}

// maxExact is the largest integer below which every one is a number in Lua.
const maxExact = 1<<53 - 1

func clamp(v, low, high int64) int64 { return max(low, min(v, high)) }

// append7 appends the low seven bytes of v, the lowest first, in two's complement: enough for ±2^53.
func append7(b []byte, v int64) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48))
}

// familyTag is a family as the script and the first byte of a stored state have it.
func familyTag(f bucket.Family) byte { return byte(f) + 1 }

// exponent returns the power of ten that tau is.
func exponent(tau int64) byte {
	e := byte(0)
	for ; tau > 1; tau /= 10 {
		e++
	}
	return e
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// decode reads the reply into out.
func (c *call) decode(out []store.Decision) {
	for i := range out {
		r := c.reply[i*replyLen:]
		out[i] = store.Decision{
			Allowed: r[0] == 1, Granted: r[1], Remaining: r[2],
			RetryAfter: bucket.Wait(r[3]), ResetAfter: bucket.Wait(r[4]), Delay: bucket.Wait(r[5]),
			Tick: r[6],
		}
	}
}
