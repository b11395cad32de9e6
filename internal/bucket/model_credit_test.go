package bucket_test

import (
	"math/big"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// creditModel counts credits in hand, of any size and sign. A hit is as many credits as the period has ticks.
type creditModel struct {
	l    *bucket.Limit // the limit in whose credits hand is; nil: absent
	hand *big.Int
	t    int64
}

func credits(hits int64, l *bucket.Limit) *big.Int {
	ticks := l.Period() / l.Tick()
	return new(big.Int).Mul(big.NewInt(hits), big.NewInt(int64(ticks)))
}

// at returns the credits in hand at x.
func (m *creditModel) at(x int64) *big.Int {
	ticks := max(0, x-m.t) / m.l.Tick().Microseconds()
	n := new(big.Int).Mul(big.NewInt(ticks), big.NewInt(m.l.Config().Hits))
	n.Add(n, m.hand)
	if most := credits(m.l.Config().Burst, m.l); n.Cmp(most) > 0 {
		return most
	}
	return n
}

func (m *creditModel) full(x int64) bool {
	return m.at(x).Cmp(credits(m.l.Config().Burst, m.l)) == 0
}

func (m *creditModel) settle(l *bucket.Limit, now int64) bool {
	cfg := l.Config()
	if m.l == nil {
		m.l, m.hand, m.t = l, credits(cfg.Burst, l), now
		return false
	}
	old := m.l
	m.l = l
	if old.Tick() != l.Tick() || old.Period() != l.Period() || old.Config().Debt != cfg.Debt {
		whole := new(big.Int).Div(m.hand, credits(1, old)) // Euclid's: down for negative numbers too
		m.hand = credits(max(-cfg.Debt, min(whole.Int64(), cfg.Burst)), l)
	}
	rebased := m.t > now+1_000_000
	if rebased {
		m.t = now
	}
	hand := m.at(now)
	if m.full(now) {
		m.t = max(m.t, now)
	} else if now > m.t {
		m.t += (now - m.t) / l.Tick().Microseconds() * l.Tick().Microseconds()
	}
	m.hand = hand
	return rebased
}

func (m *creditModel) room(x int64) *big.Int { return new(big.Int).Div(m.at(x), credits(1, m.l)) }

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
	m.anchor(now, m.hand)
	m.hand = new(big.Int).Sub(m.hand, credits(hits, m.l))
}

func (m *creditModel) giveBack(now, hits, _ int64) int64 {
	missing := new(big.Int).Sub(credits(m.l.Config().Burst, m.l), m.hand)
	whole, part := new(big.Int).DivMod(missing, credits(1, m.l), new(big.Int))
	back := whole.Int64()
	if part.Sign() > 0 {
		back++
	}
	back = min(back, hits)
	if back > 0 {
		m.hand = new(big.Int).Add(m.hand, credits(back, m.l))
		if most := credits(m.l.Config().Burst, m.l); m.hand.Cmp(most) > 0 {
			m.hand = most
		}
		m.anchor(now, m.hand)
	}
	return back
}

// anchor forgets what has passed of a tick when the next would fill the bucket.
func (m *creditModel) anchor(now int64, hand *big.Int) {
	after := new(big.Int).Add(hand, big.NewInt(m.l.Config().Hits))
	if after.Cmp(credits(m.l.Config().Burst, m.l)) > 0 {
		m.t = max(m.t, now)
	}
}

func (m *creditModel) tick(now int64) int64  { return now + 1 }
func (m *creditModel) reset(now int64) int64 { return until(now, m.full) }
func (m *creditModel) fades() int64          { return until(0, m.full) }

func (m *creditModel) state() bucket.State {
	if m.l == nil || m.hand.Cmp(credits(m.l.Config().Burst, m.l)) == 0 {
		return bucket.State{}
	}
	d := m.l.Config().Debt
	level := new(big.Int).Add(m.hand, credits(d, m.l))
	tau := m.l.Tick().Microseconds()
	return bucket.State{Words: [5]int64{level.Int64(), m.t, m.l.Period().Microseconds() / tau, tau, d}}
}

func (m *creditModel) clone() model { c := *m; return &c }
