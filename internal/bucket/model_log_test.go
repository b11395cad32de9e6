package bucket_test

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// logModel remembers the instant of every single hit, the oldest first.
type logModel struct {
	l    *bucket.Limit
	hits []int64
	at   int64 // what the clock says, standing still
}

// used returns the hits that count at x.
func (m *logModel) used(x int64) int64 {
	n := int64(0)
	for _, t := range m.hits {
		if max(x, m.at)-t < m.l.Period().Microseconds() {
			n++
		}
	}
	return n
}

func (m *logModel) settle(l *bucket.Limit, now int64) bool {
	m.l, m.at = l, now
	rebased := false
	if k := len(m.hits); k > 0 && m.hits[k-1] > now {
		if m.hits[k-1]-now <= 1_000_000 {
			m.at = m.hits[k-1]
		} else {
			rebased = true
			for i := range m.hits {
				m.hits[i] = min(m.hits[i], now)
			}
		}
	}
	m.hits = slices.DeleteFunc(m.hits, func(t int64) bool { return m.at-t >= l.Period().Microseconds() })
	return rebased
}

func (m *logModel) room(x int64) int64    { return m.l.Config().Hits - m.used(x) }
func (m *logModel) ready(_, _ int64) bool { return true }
func (m *logModel) delay(int64) int64     { return 0 }
func (m *logModel) largest() int64        { return m.l.Config().Hits }
func (m *logModel) tick(int64) int64      { return m.at + 1 }

func (m *logModel) book(_, hits int64) {
	for range hits {
		m.hits = append(m.hits, m.at)
	}
}

func (m *logModel) giveBack(_, hits, tick int64) int64 {
	back := int64(0)
	for i := 0; i < len(m.hits) && back < hits; {
		if tick == 0 || m.hits[i] == tick-1 {
			m.hits = slices.Delete(m.hits, i, i+1)
			back++
		} else {
			i++
		}
	}
	return back
}

func (m *logModel) reset(now int64) int64 {
	return until(now, func(x int64) bool { return m.used(x) == 0 })
}

func (m *logModel) fades() int64 { return m.reset(0) }

func (m *logModel) state() bucket.State {
	var s bucket.State
	for _, t := range m.hits {
		if k := len(s.Log); k > 0 && s.Log[k-1].Time == t {
			s.Log[k-1].Hits++
		} else {
			s.Log = append(s.Log, bucket.Entry{Time: t, Hits: 1})
		}
	}
	return s
}

func (m *logModel) clone() model {
	c := *m
	c.hits = slices.Clone(m.hits)
	return &c
}
