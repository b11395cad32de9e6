package redisstore

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// What is worth having happened in each family.
const (
	granted    = "granted"
	inPart     = "granted in part"
	thoughOver = "granted though refused"
	back       = "given back"
	backInPart = "given back in part"
	noBack     = "nothing to give back"
	forAWhile  = "refused for a while"
	forEver    = "refused for ever"
	peekOver   = "peek refused"
	notBooked  = "allowed, but not booked"
	delayed    = "delayed"               // credit only
	long       = "a log of many entries" // log only
)

var events = []string{granted, inPart, thoughOver, back, backInPart, noBack, forAWhile, forEver, peekOver, notBooked, delayed, long}

// note counts what a decision shows to have happened.
func (w *world) note(c store.Charge, d store.Decision) {
	for what, happened := range map[string]bool{
		granted:    d.Granted > 0,
		inPart:     d.Allowed && d.Granted > 0 && d.Granted < c.Hits,
		thoughOver: !d.Allowed && d.Granted > 0,
		back:       d.Granted < 0,
		backInPart: d.Granted < 0 && d.Granted > c.Hits,
		noBack:     c.Hits < 0 && d.Granted == 0,
		forAWhile:  d.RetryAfter > 0,
		forEver:    d.RetryAfter == bucket.Never,
		peekOver:   c.Hits == 0 && !d.Allowed,
		notBooked:  d.Allowed && c.Hits > 0 && d.Granted == 0,
		delayed:    d.Delay > 0,
		long:       d.Granted > 0 && len(w.model.states[c.Key].Log) > 100, // ENTRIES of take.lua
	} {
		if happened {
			w.seen[c.Limit.Family().String()+": "+what]++
		}
	}
}
