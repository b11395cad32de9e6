package bucket

import "time"

// Around returns the starts of four neighbouring windows of a limit with a calendar, in microseconds since the Unix
// epoch: now lies in the second, [w[1], w[2]). A store whose clock is another picks among them. It is zero for a limit
// without a calendar. It does not allocate.
//
// Windows begin at the first instant of a local day: every Multiplier-th day or week counted from 1970, weeks from
// Mondays, months and years from January 1970. What began before 1970 is said to have begun with it, and the window of a
// day that a zone skips is empty.
func (l *Limit) Around(now int64) [4]int64 {
	if l.c.Calendar == nil {
		return [4]int64{}
	}
	i := l.calendarIndex(time.UnixMicro(clampTime(now)).In(l.c.Calendar))
	var w [4]int64
	for k := range w {
		w[k] = max(0, l.calendarStart(i+int64(k)-1))
	}
	return w
}

// monday is the first Monday after the epoch: 1970-01-05.
const monday = 4

// calendarIndex numbers the window that holds the local time t.
func (l *Limit) calendarIndex(t time.Time) int64 {
	y, m, d := t.Date()
	days := dayNumber(y, m, d)
	months := int64(y-1970)*12 + int64(m-time.January)
	switch l.c.Unit {
	case Week:
		return floor(floor(days-monday, 7), l.c.Multiplier)
	case Month:
		return floor(months, l.c.Multiplier)
	case Year:
		return floor(floor(months, 12), l.c.Multiplier)
	default:
		return floor(days, l.c.Multiplier)
	}
}

// calendarStart returns the first instant of the window with the given number.
func (l *Limit) calendarStart(i int64) int64 {
	i *= l.c.Multiplier
	switch l.c.Unit {
	case Week:
		return firstInstant(1970, time.January, 1+monday+int(i)*7, l.c.Calendar)
	case Month:
		return firstInstant(1970, time.January+time.Month(i), 1, l.c.Calendar)
	case Year:
		return firstInstant(1970+int(i), time.January, 1, l.c.Calendar)
	default:
		return firstInstant(1970, time.January, 1+int(i), l.c.Calendar)
	}
}

// dayNumber counts days from 1970-01-01.
func dayNumber(y int, m time.Month, d int) int64 {
	return floor(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix(), 86400)
}

// firstInstant returns when a local day begins, in microseconds: usually midnight, but a clock change may skip midnight
// or repeat it, and then time.Date does not say which instant it returns.
func firstInstant(y int, m time.Month, d int, loc *time.Location) int64 {
	t := time.Date(y, m, d, 0, 0, 0, 0, loc)
	start, end := t.ZoneBounds()
	want := dayNumber(y, m, d)
	shown := dayNumber(t.Date())
	if h, minute, s := t.Clock(); shown != want || h != 0 || minute != 0 || s != 0 { // midnight, or the whole day, is skipped
		if shown < want {
			return end.UnixMicro()
		}
		return start.UnixMicro()
	}
	if !start.IsZero() { // midnight may have been once before, ahead of a change
		_, offset := t.Zone()
		_, before := start.Add(-time.Second).Zone()
		first := t.Add(time.Duration(offset-before) * time.Second)
		if first.Before(start) && dayNumber(first.Date()) == want {
			return first.UnixMicro()
		}
	}
	return t.UnixMicro()
}

// floor returns ⌊a/b⌋ for b ≥ 1.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
