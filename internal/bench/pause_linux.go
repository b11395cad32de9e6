package bench

import (
	"syscall"
	"time"
)

// pause sleeps for d, at most a millisecond: Go's own timers may wake a millisecond late when nothing else is to do, which
// is more than a fast server takes to answer.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(min(d, time.Millisecond).Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // woken early, the caller sleeps again
}
