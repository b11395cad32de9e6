package bucket

// The window family: fixed_window and sliding_window. Its twin is window.lua.
//
// Time is cut into windows of p ticks. cur counts the hits of the window that began at start, prev those of the one
// before; a sliding window weighs prev by the share of it that the last p ticks still reach.

// validWindow reports whether some limit of the family can have written s.
func (s *State) validWindow() bool {
	cur, prev, p, tau, start := s.Words[0], s.Words[1], s.Words[2], s.Words[3], s.Words[4]
	// Twice the longest period, since ten calendar years have leap days.
	return p >= 1 && tau >= 1 && p <= 2*MaxPeriod.Microseconds()/tau &&
		cur >= 0 && cur <= MaxCost &&
		prev >= 0 && prev <= 2*maxProduct/p-1 && prev <= MaxCost &&
		start >= 0 && start <= MaxTime
}

func (l *Limit) window(s *State, now int64, a Ask) Outcome {
	n, d, p, tau := l.terms.N, l.terms.D, l.terms.P, l.terms.Tau
	top := n // what Count counts to: one past the limit tells "over" from "at"
	if l.terms.Envoy {
		top = n + 1
	}
	most := max(n+d, top)

	// The window of now. A clock that stepped back a little stands still at the start of the window it had reached.
	valid := s.validWindow()
	start0 := s.Words[4]
	rebased := valid && start0 > now+backstep
	at := now
	if valid && !rebased {
		at = max(now, start0)
	}
	start := at / (p * tau) * (p * tau)
	if l.terms.Calendar {
		around := l.Around(now)
		i := 0
		for i < 2 && at >= around[i+1] { // outside of all: the nearest
			i++
		}
		start, p = around[i], around[i+1]-around[i]
	}

	// The counts now, under this limit.
	cur, prev := int64(0), int64(0)
	if valid {
		cur0, prev0, p0, tau0 := s.Words[0], s.Words[1], s.Words[2], s.Words[3]
		if rebased {
			start0 = start
		}
		end0 := start0 + p0*tau0
		switch {
		case start0 == start && p0 == p && tau0 == tau:
			cur, prev = cur0, prev0
		case end0 > start: // another limit's, still open when this window began: all that it uses now counts
			cur = cur0 + ceil(prev0*max(0, p0-max(0, at-start0)/tau0), p0)
		case end0 > start-p*tau:
			prev = cur0
		}
		cur, prev = min(cur, most), min(prev, most)
	}
	weight := int64(0)
	if l.terms.Sliding {
		weight = ceil(prev*(p-max(0, at-start)/tau), p)
	} else {
		prev = 0
	}
	used := cur + weight

	// Does it fit?
	need := l.need(a)
	allowed := a.Hits < 0 || used+need <= n

	// Book it.
	granted := int64(0)
	switch {
	case a.Mode == Look || a.Hits == 0:
	case a.Hits < 0:
		if a.Tick == 0 || a.Tick == start+1 {
			granted = -min(-a.Hits, cur)
		}
	case allowed:
		granted = min(a.Hits, n-used)
	case a.Mode == Report:
		granted = max(0, min(a.Hits, n+d-used))
	case a.Mode == Count:
		granted = max(0, min(a.Hits, top-used))
	}
	cur += granted
	used += granted

	// Answer.
	o := Outcome{Allowed: allowed, Granted: granted, Changed: granted != 0 || rebased}
	o.Remaining = max(0, n-used)
	end := start + p*tau
	o.ResetAfter = max(0, min(end, MaxTime)-now)
	room := n - need // what may be used when it fits
	switch {
	case allowed:
	case room < 0:
		o.RetryAfter = never
	default:
		again := end // fixed: the next window is empty
		if l.terms.Sliding {
			if cur <= room { // prev wears off in this window
				again = start + (p-(room-cur)*p/max(1, prev))*tau
			} else { // cur wears off in the next one
				again = end + (p-room*p/cur)*tau
			}
		}
		o.RetryAfter = max(1, again-now)
		if again > MaxTime {
			o.RetryAfter = never
		}
	}
	if granted != 0 {
		o.Tick = start + 1
	}
	if o.Changed {
		switch {
		case cur == 0 && prev == 0:
			s.Words = [5]int64{}
		default:
			s.Words = [5]int64{cur, prev, p, tau, start}
			last := end // when the last window that matters ends
			if l.terms.Sliding && cur > 0 {
				last = end + p*tau
			}
			o.TTL = max(1, min(last, MaxTime)-now)
		}
	}
	return o
}
