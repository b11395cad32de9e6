package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc: Linux reports hundredths of a second to user space on every architecture.
const tick = 10 * time.Millisecond

// CPUTime returns the user and system time that a process has taken, in steps of 10 ms. Linux only; the error says that
// there is no such process to be seen.
func CPUTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // from the state, field 3 of proc(5)
	if len(fields) < 13 {
		return 0, fmt.Errorf("CPU time of process %d: cannot read /proc", pid)
	}
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// ResidentBytes returns the memory of a process that is in RAM. Linux only, as CPUTime.
func ResidentBytes(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0, fmt.Errorf("memory of process %d: cannot read /proc", pid)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return pages * int64(os.Getpagesize()), nil
}
