package bucket_test

import (
	"math/bits"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// creditModel counts credits in hand, below zero in debt. A hit is as many credits as the period has ticks; New has made sure
// that burst and debt are fewer than 2^53 of them (TestNewBoundsProducts).
type creditModel struct {
	l    *bucket.Limit // the limit in whose credits hand is; nil: absent
	hand int64
	t    int64
}

// price returns the credits of one hit, and most those of the burst.
func price(l *bucket.Limit) int64 { return int64(l.Period() / l.Tick()) }
func most(l *bucket.Limit) int64  { return l.Config().Burst * price(l) }

// at returns the credits in hand at x.
func (m *creditModel) at(x int64) int64 {
	ticks := max(0, x-m.t) / tickOf(m.l)
	missing := most(m.l) - m.hand
	if over, came := bits.Mul64(uint64(ticks), uint64(m.l.Config().Hits)); over == 0 && came < uint64(missing) {
		return m.hand + int64(came)
	}
	return most(m.l)
}

func (m *creditModel) full(x int64) bool { return m.at(x) == most(m.l) }

func (m *creditModel) settle(l *bucket.Limit, now int64) bool {
	if m.l == nil {
		m.l, m.hand, m.t = l, most(l), now
		return false
	}
	cfg, old := l.Config(), m.l
	if old.Tick() != l.Tick() || old.Period() != l.Period() || old.Config().Debt != cfg.Debt {
		whole := floorDiv(m.hand, price(old))
		m.hand = max(-cfg.Debt, min(whole, cfg.Burst)) * price(l)
	}
	m.l, m.hand = l, min(m.hand, most(l))
	rebased := m.t > now+1_000_000
	if rebased {
		m.t = now
	}
	hand := m.at(now)
	switch {
	case m.full(now):
		m.t = max(m.t, now)
	case now > m.t:
		m.t += (now - m.t) / tickOf(l) * tickOf(l)
	}
	m.hand = hand
	return rebased
}

// floorDiv rounds down, negative numbers too.
func floorDiv(a, b int64) int64 {
	q := a / b
	if q*b > a {
		q--
	}
	return q
}

func (m *creditModel) room(x int64) int64 { return floorDiv(m.at(x), price(m.l)) }

// emptied returns when a queue that nobody joins is empty.
func (m *creditModel) emptied(from int64) int64 { return until(from, m.full) }

func (m *creditModel) ready(x, maxDelay int64) bool {
	return m.l.Config().MaxDelay == 0 || m.emptied(x)-x <= maxDelay
}

func (m *creditModel) delay(now int64) int64 {
	if m.l.Config().MaxDelay == 0 {
		return 0
	}
	return m.emptied(now) - now
}

func (m *creditModel) largest() int64 { return m.l.Config().Burst }

func (m *creditModel) book(now, hits int64) {
	m.anchor(now)
	m.hand -= hits * price(m.l)
}

func (m *creditModel) giveBack(now, hits, _ int64) int64 {
	missing := most(m.l) - m.hand
	back := min(hits, missing/price(m.l))
	if back < hits && back*price(m.l) < missing {
		back++ // comes back in part
	}
	if back > 0 {
		m.hand = min(m.hand+back*price(m.l), most(m.l))
		m.anchor(now)
	}
	return back
}

// anchor forgets what has passed of a tick when the next would more than fill the bucket.
func (m *creditModel) anchor(now int64) {
	if m.hand+m.l.Config().Hits > most(m.l) {
		m.t = max(m.t, now)
	}
}

func (m *creditModel) tick(now int64) int64  { return now + 1 }
func (m *creditModel) reset(now int64) int64 { return until(now, m.full) }
func (m *creditModel) fades() int64          { return until(0, m.full) }

func (m *creditModel) state() bucket.State {
	if m.l == nil || m.hand == most(m.l) {
		return bucket.State{}
	}
	d := m.l.Config().Debt
	return bucket.State{Words: [5]int64{m.hand + d*price(m.l), m.t, price(m.l), tickOf(m.l), d}}
}

func (m *creditModel) clone() model { c := *m; return &c }
