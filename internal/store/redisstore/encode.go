package redisstore

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// spareTTL is how long states outlive their use where decisions follow a clock that Redis does not: it would expire them
// by its own while that one stands still.
const spareTTL = time.Hour

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

// answerLen is how many bytes answer a charge: ANSWER_FORMAT of take.lua.
const answerLen = 1 + 5 + 4 + 3*7

// decode reads the reply into out.
func (c *call) decode(out []store.Decision) {
	for i := range out {
		r := c.reply[i*answerLen:][:answerLen]
		d := store.Decision{
			Allowed: r[0] == 1, Granted: readInt(r[1:6]), Remaining: int64(binary.LittleEndian.Uint32(r[6:])),
			ResetAfter: bucket.Wait(readInt(r[17:24])), Tick: readInt(r[24:31]),
		}
		wait := bucket.Wait(readInt(r[10:17]))
		if d.Allowed {
			d.Delay = wait
		} else {
			d.RetryAfter = wait
		}
		out[i] = d
	}
}

// readInt reads an integer in two's complement, its lowest byte first.
func readInt(b []byte) int64 {
	v := int64(int8(b[len(b)-1]))
	for i := len(b) - 2; i >= 0; i-- {
		v = v<<8 | int64(b[i])
	}
	return v
}
