package redisstore

import (
	"encoding/binary"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// model is what take.lua should do, written after bucket/SPEC.md for clarity alone: a map of states and copies of them.
type model struct {
	states map[store.Key]bucket.State
	ttls   map[store.Key]int64 // microseconds, of the last write
}

func clone(s bucket.State) bucket.State {
	s.Log = append([]bucket.Entry(nil), s.Log...)
	return s
}

// pass is one walk over the charges of a request, on copies.
type pass struct {
	m      *model
	now    int64
	copies map[store.Key]bucket.State
	ttls   map[store.Key]int64
}

func (m *model) pass(now int64) *pass {
	return &pass{m, now, make(map[store.Key]bucket.State), make(map[store.Key]int64)}
}

func (p *pass) take(c *store.Charge, mode bucket.Mode, before int64) bucket.Outcome {
	s, ok := p.copies[c.Key]
	if !ok {
		s = clone(p.m.states[c.Key])
	}
	o := c.Limit.Take(&s, p.now, bucket.Ask{
		Hits: c.Hits, AtLeast: c.AtLeast, Tick: c.Tick, MaxDelay: c.MaxDelay.Microseconds(), Before: before, Mode: mode,
	})
	p.copies[c.Key] = s
	if o.Changed {
		p.ttls[c.Key] = o.TTL
	}
	return o
}

func (p *pass) write() {
	for key, ttl := range p.ttls {
		p.m.states[key], p.m.ttls[key] = p.copies[key], ttl
	}
}

// take decides one request.
func (m *model) take(charges []store.Charge, now int64) []store.Decision {
	modes := map[store.Book]bucket.Mode{
		store.BookIfAdmitted: bucket.Fit, store.BookAlways: bucket.Report, store.BookWhenRefuses: bucket.Count,
	}
	outcomes := make([]bucket.Outcome, len(charges))
	decisions := make([]store.Decision, len(charges))
	before := make([]int64, len(charges))
	taken := make(map[store.Key]int64)
	ask := m.pass(now)
	for i := range charges {
		c := &charges[i]
		before[i] = taken[c.Key]
		outcomes[i] = ask.take(c, modes[c.Book], 0)
		taken[c.Key] = max(0, taken[c.Key]+outcomes[i].Granted)
		decisions[i] = decision(outcomes[i])
	}
	if store.Admitted(charges, decisions) {
		ask.write()
		return decisions
	}

	room := make(map[store.Vote]bool)
	for i := range charges {
		room[charges[i].Vote] = room[charges[i].Vote] || outcomes[i].Allowed
	}
	settle := m.pass(now)
	booked := make(map[store.Key]int64)
	for i := range charges {
		c := &charges[i]
		refuses := !outcomes[i].Allowed &&
			(c.Vote == store.VoteEnforce || c.Vote >= store.VoteQuota && !room[c.Vote])
		mode := bucket.Look
		if c.Book == store.BookAlways || c.Book == store.BookWhenRefuses && refuses {
			mode = modes[c.Book]
		}
		o := settle.take(c, mode, max(0, before[i]-booked[c.Key]))
		booked[c.Key] += o.Granted
		o.Delay, o.Allowed = 0, outcomes[i].Allowed
		switch {
		case o.Allowed:
			o.RetryAfter = 0
		case o.RetryAfter == 0:
			o.RetryAfter = 1
		}
		decisions[i] = decision(o)
	}
	settle.write()
	return decisions
}

func decision(o bucket.Outcome) store.Decision {
	return store.Decision{
		Allowed: o.Allowed, Granted: o.Granted, Remaining: o.Remaining, RetryAfter: bucket.Wait(o.RetryAfter),
		ResetAfter: time.Duration(o.ResetAfter) * time.Microsecond, Delay: time.Duration(o.Delay) * time.Microsecond,
		Tick: o.Tick,
	}
}

// uint returns the unsigned integer whose bytes are b, the lowest first.
func uint(b []byte) int64 {
	var full [8]byte
	copy(full[:], b)
	return int64(binary.LittleEndian.Uint64(full[:]))
}

// readState reads what the script stored; what it would not understand is absent, or impossible.
func readState(f bucket.Family, v []byte) bucket.State {
	var s bucket.State
	if len(v) == 0 || v[0] != familyTag(f) {
		return s
	}
	switch b := v[1:]; {
	case f == bucket.Credit && len(b) == 26:
		s.Words = [5]int64{uint(b[:7]), uint(b[7:14]), uint(b[14:21]), power(b[21]), uint(b[22:26])}
	case f == bucket.Window && len(b) == 25:
		s.Words = [5]int64{uint(b[:5]), uint(b[5:10]), uint(b[10:17]), power(b[17]), uint(b[18:25])}
	case f == bucket.Log && len(b)%12 == 0:
		for ; len(b) > 0; b = b[12:] {
			s.Log = append(s.Log, bucket.Entry{Time: uint(b[:7]), Hits: uint(b[7:12])})
		}
	}
	return s
}

// power returns 10^e for the ticks there are, else 0.
func power(e byte) int64 {
	if e > 14 {
		return 0
	}
	p := int64(1)
	for range e {
		p *= 10
	}
	return p
}
