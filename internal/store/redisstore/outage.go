package redisstore

import (
	"log/slog"
	"sync"
	"time"
)

// outageEvery is how often an outage is worth a line in the log.
const outageEvery = 10 * time.Second

// outage logs calls that Redis did not answer: the first, then one line every ten seconds with how many there were.
type outage struct {
	logger *slog.Logger

	mu     sync.Mutex
	failed int       // calls since the last line
	last   time.Time // of the last line
}

// report tells of one failed call.
func (o *outage) report(err error) {
	o.mu.Lock()
	o.failed++
	now := time.Now()
	if now.Sub(o.last) < outageEvery {
		o.mu.Unlock()
		return
	}
	failed := o.failed
	o.failed, o.last = 0, now
	o.mu.Unlock()
	o.logger.Warn("redis does not take charges", "error", err, "calls", failed)
}
