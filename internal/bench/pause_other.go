//go:build !linux

package bench

import "time"

// pause sleeps for d, or a little longer.
func pause(d time.Duration) { time.Sleep(min(d, time.Millisecond)) }
