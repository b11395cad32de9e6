package bucket

import "slices"

// The log family: sliding_log. Its twin is log.lua.
//
// Every hit younger than a period p (in microseconds) is remembered, hits of one instant in one entry, the oldest first.

// validLog reports whether some limit of the family can have written s: instants ascend and hits are positive.
func (s *State) validLog() bool {
	last := int64(-1)
	for _, e := range s.Log {
		if e.Time <= last || e.Time > MaxTime || e.Hits < 1 || e.Hits > MaxCost {
			return false
		}
		last = e.Time
	}
	return true
}

func (l *Limit) log(s *State, now int64, a Ask) Outcome {
	n, d, p := l.terms.N, l.terms.D, l.terms.P
	top := n // what Count counts to: one past the limit tells "over" from "at"
	if l.terms.Envoy {
		top = n + 1
	}
	if !s.validLog() {
		s.Log = s.Log[:0]
	}

	// A clock that stepped back a little stands still at the newest entry; after a larger step, entries from the future
	// are taken for entries of now.
	at := now
	rebased := false
	if k := len(s.Log); k > 0 && s.Log[k-1].Time > now {
		if s.Log[k-1].Time <= now+backstep {
			at = s.Log[k-1].Time
		} else {
			s.rebaseLog(now)
			rebased = true
		}
	}

	// What is younger than a period counts.
	first, used := 0, int64(0)
	for i, e := range slices.Backward(s.Log) {
		if at-e.Time >= p {
			first = i + 1
			break
		}
		used += e.Hits
	}

	// Does it fit?
	need := l.need(a)
	allowed := a.Hits < 0 || used+need <= n

	// Book it.
	granted := int64(0)
	switch {
	case a.Mode == Look || a.Hits == 0:
	case a.Hits < 0:
		granted = -s.giveBackLog(first, -a.Hits, a.Tick-1)
	case allowed:
		granted = min(a.Hits, n-used)
	case a.Mode == Report:
		granted = max(0, min(a.Hits, n+d-used))
	case a.Mode == Count:
		granted = max(0, min(a.Hits, top-used))
	}
	used += granted
	o := Outcome{Allowed: allowed, Granted: granted, Changed: granted != 0 || rebased}
	if o.Changed {
		s.trimLog(first)
		first = 0
		if granted > 0 {
			s.appendLog(at, granted)
		}
	}

	// Answer.
	o.Remaining = max(0, n-used)
	if k := len(s.Log); k > first {
		o.ResetAfter = max(0, min(s.Log[k-1].Time+p, MaxTime)-now)
	}
	room := n - need // what may be used when it fits
	switch {
	case allowed:
	case room < 0:
		o.RetryAfter = never
	default:
		again := now
		for i, left := first, used; left > room; i++ { // used ends at 0
			left -= s.Log[i].Hits
			again = s.Log[i].Time + p
		}
		o.RetryAfter = max(1, again-now)
		if again > MaxTime {
			o.RetryAfter = never
		}
	}
	if granted != 0 {
		o.Tick = at + 1
	}
	if o.Changed && len(s.Log) > 0 {
		o.TTL = max(1, o.ResetAfter)
	}
	return o
}

// rebaseLog makes one entry at now of all that are not older.
func (s *State) rebaseLog(now int64) {
	hits := int64(0)
	for k := len(s.Log); k > 0 && s.Log[k-1].Time >= now; k-- {
		hits += s.Log[k-1].Hits
		s.Log = s.Log[:k-1]
	}
	s.Log = append(s.Log, Entry{now, min(hits, MaxCost)})
}

// giveBackLog takes up to hits from the entry of the given instant, or if that is negative from the oldest on, so that
// what is left is remembered longest. It returns the hits taken; it may leave entries of 0 hits to trimLog.
func (s *State) giveBackLog(first int, hits, instant int64) int64 {
	left := hits
	for i := first; i < len(s.Log) && left > 0; i++ {
		if instant < 0 || s.Log[i].Time == instant {
			h := min(left, s.Log[i].Hits)
			s.Log[i].Hits -= h
			left -= h
		}
	}
	return hits - left
}

// trimLog drops the entries before first and those of 0 hits.
func (s *State) trimLog(first int) {
	kept := s.Log[:0]
	for _, e := range s.Log[first:] {
		if e.Hits > 0 {
			kept = append(kept, e)
		}
	}
	s.Log = kept
}

// appendLog adds hits at an instant that is not before the newest entry.
func (s *State) appendLog(at, hits int64) {
	if k := len(s.Log); k > 0 && s.Log[k-1].Time == at {
		s.Log[k-1].Hits += hits
		return
	}
	s.Log = append(s.Log, Entry{at, hits})
}
