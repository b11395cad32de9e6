package bucket_test

import (
	"math/bits"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// windowModel remembers every grant with the window it was made in.
type windowModel struct {
	l      *bucket.Limit // nil: absent
	w      span          // the window of the last settle
	grants []grant
}

// span is a window in microseconds, its end excluded.
type span struct{ start, end int64 }

// grant is hits in a window; negative: given back.
type grant struct {
	start int64
	hits  int64
}

// windowOf returns the window of l that holds x.
func windowOf(l *bucket.Limit, x int64) span {
	if l.Config().Calendar != nil {
		w := l.Around(x)
		return span{w[1], w[2]}
	}
	p := l.Period().Microseconds()
	return span{x - x%p, x - x%p + p}
}

func tickOf(l *bucket.Limit) int64 { return l.Tick().Microseconds() }

// in returns the hits of the window that begins at start.
func (m *windowModel) in(start int64) int64 {
	n := int64(0)
	for _, g := range m.grants {
		if g.start == start {
			n += g.hits
		}
	}
	return n
}

// weight returns what is left at x of the hits of the window before w, in ticks of l, rounded up.
func weight(l *bucket.Limit, w span, x, hits int64) int64 {
	ticks := (w.end - w.start) / tickOf(l)
	left := ticks - max(0, x-w.start)/tickOf(l)
	if left <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(hits), uint64(left))
	n, rest := bits.Div64(hi, lo, uint64(ticks))
	if rest > 0 {
		n++
	}
	return int64(n)
}

// used returns the hits used at x.
func (m *windowModel) used(x int64) int64 {
	x = max(x, m.w.start) // a clock that stands still
	w := m.w
	if x >= m.w.end {
		w = windowOf(m.l, x)
	}
	n := m.in(w.start)
	if m.l.Config().Algorithm == bucket.SlidingWindow {
		n += weight(m.l, w, x, m.in(w.start-(w.end-w.start)))
	}
	return n
}

func (m *windowModel) settle(l *bucket.Limit, now int64) bool {
	old, was := m.l, m.w
	m.l = l
	m.w = windowOf(l, now)
	if old == nil {
		return false
	}
	at, rebased := now, false
	switch {
	case was.start > now+1_000_000:
		rebased = true
		length := was.end - was.start
		for i := range m.grants { // all is moved to where the window is now
			m.grants[i].start += m.w.start - was.start
		}
		was = span{m.w.start, m.w.start + length}
	case was.start > now:
		at = was.start
		m.w = windowOf(l, at)
	}
	cur, prev := m.in(was.start), m.in(was.start-(was.end-was.start))
	sliding := l.Config().Algorithm == bucket.SlidingWindow
	sameTicks := old.Tick() == l.Tick()
	before := m.w.start - (m.w.end - m.w.start)
	switch {
	case was == m.w && sameTicks:
	case was.end > m.w.start:
		cur, prev = cur+weight(old, was, at, prev), 0
	case was.end > before:
		cur, prev = 0, cur
	default:
		cur, prev = 0, 0
	}
	most := l.Config().Hits + l.Config().Debt
	if l.Config().Envoy {
		most = max(most, l.Config().Hits+1)
	}
	m.grants = []grant{{m.w.start, min(cur, most)}}
	if sliding {
		m.grants = append(m.grants, grant{before, min(prev, most)})
	}
	return rebased
}

func (m *windowModel) room(x int64) int64    { return m.l.Config().Hits - m.used(x) }
func (m *windowModel) ready(_, _ int64) bool { return true }
func (m *windowModel) delay(int64) int64     { return 0 }
func (m *windowModel) largest() int64        { return m.l.Config().Hits }
func (m *windowModel) book(_, hits int64)    { m.grants = append(m.grants, grant{m.w.start, hits}) }
func (m *windowModel) tick(int64) int64      { return m.w.start + 1 }

func (m *windowModel) giveBack(_, hits, tick int64) int64 {
	if tick != 0 && tick != m.w.start+1 {
		return 0
	}
	hits = min(hits, m.in(m.w.start))
	m.grants = append(m.grants, grant{m.w.start, -hits})
	return hits
}

func (m *windowModel) reset(now int64) int64 { return max(now, min(m.w.end, bucket.MaxTime)) }

func (m *windowModel) fades() int64 {
	return until(m.w.start, func(x int64) bool {
		w := m.w
		if x >= w.end {
			w = windowOf(m.l, x)
		}
		if m.in(w.start) != 0 {
			return false
		}
		return m.l.Config().Algorithm != bucket.SlidingWindow || m.in(w.start-(w.end-w.start)) == 0
	})
}

func (m *windowModel) state() bucket.State {
	if m.l == nil {
		return bucket.State{}
	}
	length := m.w.end - m.w.start
	cur, prev := m.in(m.w.start), m.in(m.w.start-length)
	if cur == 0 && prev == 0 {
		return bucket.State{}
	}
	return bucket.State{Words: [5]int64{cur, prev, length / tickOf(m.l), tickOf(m.l), m.w.start}}
}

func (m *windowModel) clone() model {
	c := *m
	c.grants = append([]grant(nil), m.grants...)
	return &c
}
