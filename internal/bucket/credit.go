package bucket

// The credit family: token_bucket, gcra, leaky_bucket. Its twin is credit.lua.
//
// One hit is p credits and one tick brings n of them, so nothing is ever rounded. level is the credits in hand plus d·p:
// 0 is as deep in debt as the limit allows, full is a full bucket.

// validCredit reports whether some limit of the family can have written s.
func (s *State) validCredit() bool {
	level, t, p, tau, d := s.Words[0], s.Words[1], s.Words[2], s.Words[3], s.Words[4]
	return p >= 1 && tau >= 1 && p <= MaxPeriod.Microseconds()/tau &&
		level >= 0 && level <= maxProduct &&
		t >= 0 && t <= MaxTime &&
		d >= 0 && d <= maxProduct/p
}

func (l *Limit) credit(s *State, now int64, a Ask) Outcome {
	n, b, d, p, tau := l.terms.N, l.terms.B, l.terms.D, l.terms.P, l.terms.Tau
	full := (b + d) * p

	// The bucket now, under this limit: an absent one is full.
	level, t := full, now
	rebased := false
	if s.validCredit() {
		level, t = s.Words[0], s.Words[1]
		p0, tau0, d0 := s.Words[2], s.Words[3], s.Words[4]
		if p0 != p || tau0 != tau || d0 != d { // another limit's: whole hits in hand are kept
			level = (max(-d, min(level/p0-d0, b)) + d) * p
		}
		level = min(level, full)
		if t > now+backstep {
			t = now
			rebased = true
		}
		ticks := max(0, now-t) / tau
		if ticks >= ceil(full-level, n) {
			level = full
			t = max(t, now)
		} else {
			level += ticks * n
			t += ticks * tau
		}
	}

	// Does it fit? whole hits in hand may be negative: a debt.
	whole := level/p - d
	need := l.need(a)
	allowed := a.Hits < 0 || need <= b && whole >= need
	delay, maxDelay := int64(0), int64(0)
	if l.terms.MaxDelay > 0 && a.Hits >= 0 { // a queue: what is missing stands before this charge
		delay = untilFull(full-level, n, t, tau, now)
		maxDelay = max(0, min(a.MaxDelay, l.terms.MaxDelay))
		allowed = allowed && delay <= maxDelay
	}

	// Book it.
	granted := int64(0)
	switch {
	case a.Mode == Look || a.Hits == 0:
	case a.Hits < 0:
		granted = -min(-a.Hits, ceil(full-level, p))
	case allowed:
		granted = min(a.Hits, whole)
	case a.Mode == Report:
		granted = min(a.Hits, whole+d)
	case a.Mode == Count:
		granted = max(0, min(a.Hits, whole))
	}
	was := level
	level = min(level-granted*p, full)
	if granted != 0 && full-max(was, level) < n {
		// Less than a tick from full: what has passed of the tick is past, or the next would bring it on top of the burst.
		t = max(t, now)
	}

	// Answer.
	o := Outcome{Allowed: allowed, Granted: granted, Changed: granted != 0 || rebased}
	o.Remaining = max(0, level/p-d)
	o.ResetAfter = untilFull(full-level, n, t, tau, now)
	switch {
	case allowed:
	case need > b:
		o.RetryAfter = never
	default:
		o.RetryAfter = creditWait((need+d)*p-level, n, t, tau, now)
		if o.RetryAfter != never {
			o.RetryAfter = max(1, o.RetryAfter)
			if l.terms.MaxDelay > 0 {
				o.RetryAfter = max(o.RetryAfter, o.ResetAfter-maxDelay)
			}
		}
	}
	if granted != 0 {
		o.Tick = now + 1
	}
	if granted > 0 && allowed {
		o.Delay = delay
	}
	if o.Changed {
		if level == full {
			s.Words = [5]int64{}
		} else {
			s.Words = [5]int64{level, t, p, tau, d}
			o.TTL = max(1, o.ResetAfter)
		}
	}
	return o
}

// untilFull is the wait at now until a bucket is full, cut at the end of time.
func untilFull(missing, n, t, tau, now int64) int64 {
	wait := creditWait(missing, n, t, tau, now)
	if wait == never {
		return MaxTime - now
	}
	return wait
}

// creditWait returns the wait at now until so many credits have come since t, never if that is after the end of time.
func creditWait(missing, n, t, tau, now int64) int64 {
	if missing <= 0 {
		return 0
	}
	ticks := ceil(missing, n)
	if ticks > (MaxTime-t)/tau {
		return never
	}
	return t + ticks*tau - now
}
