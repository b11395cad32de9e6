package bucket_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// TestAround draws instants in zones whose clocks change at odd times and checks what a calendar's windows promise.
func TestAround(t *testing.T) {
	t.Parallel()
	c := newChance(t)
	odd := []string{
		"UTC", "Europe/Berlin", "America/New_York", // at two or three in the night
		"America/Santiago", "America/Asuncion", "Africa/Cairo", "Asia/Beirut", // midnight is skipped
		"America/Havana", "Atlantic/Azores", // midnight comes twice
		"Pacific/Apia", // a whole day is skipped: 2011-12-30
		"Australia/Lord_Howe", "Asia/Kathmandu",
	}
	for range ops() / 20 {
		loc := zone(pick(c, odd...))
		unit := pick(c, bucket.Day, bucket.Week, bucket.Month, bucket.Year)
		multiplier := int64(1)
		if c.IntN(4) == 0 {
			multiplier = 1 + c.upTo(int64(bucket.MaxPeriod/unit.Duration())-1)
		}
		l := newLimit(t, bucket.Config{
			Algorithm: bucket.FixedWindow, Hits: 1, Unit: unit, Multiplier: multiplier, Calendar: loc,
		})
		const last = 7_258_118_400_000_000 // the year 2200: no window reaches the end of time
		now := c.upTo(last)
		if c.IntN(4) > 0 {
			now = 1_262_304_000_000_000 + c.upTo(1<<50) // 2010 and the 35 years after it
		}
		w := l.Around(now)
		if c.IntN(4) == 0 {
			now = max(0, min(pick(c, w[:]...)+c.Int64N(3)-1, last))
			w = l.Around(now)
		}
		if now < w[1] || now >= w[2] || w[0] > w[1] || w[2] > w[3] {
			t.Fatalf("%v %d %vs: got %v around %d", loc, multiplier, unit, w, now)
		}
		if w[1] == 0 { // cut at the epoch
			continue
		}
		at := time.UnixMicro(w[1]).In(loc)
		before := time.UnixMicro(w[1] - 1).In(loc)
		if y, m, d := at.Date(); before.YearDay() == at.YearDay() && before.Year() == y ||
			unit == bucket.Week && at.Weekday() != time.Monday ||
			unit == bucket.Month && d != 1 ||
			unit == bucket.Year && (m != time.January || d != 1) {
			t.Fatalf("%v %d %vs: got a window that begins at %v, after %v", loc, multiplier, unit, at, before)
		}
		prev, next := l.Around(w[1]-1), l.Around(w[2])
		if prev[2] != w[1] || next[1] != w[2] ||
			w[0] < w[1] && prev[1] != w[0] || w[2] < w[3] && next[2] != w[3] { // an empty window holds no instant
			t.Fatalf("%v %d %vs: got %v, %v and %v side by side", loc, multiplier, unit, prev, w, next)
		}
	}
}
