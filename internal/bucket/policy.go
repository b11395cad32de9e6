package bucket

import "fmt"

// Policy says where charges on a limit are paid and what happens when they cannot be. The arithmetic ignores it;
// it lives here because rule compiles it and limiter reads it, and neither may import the other. Immutable once shared.
// The zero value fails open, keeps what is refunded from its callers, and has no name.
type Policy struct {
	OnFailure     FailureMode
	LocalFraction int64  // LocalStrict's part of the local share, in millionths, 1…1,000,000; 0 means 100,000, a tenth
	NodeScope     bool   // buckets live in this process only
	Refunds       bool   // whether callers may give hits back
	Rule          string // the limit's name for people and metrics: domain, then path or name; never a request's value
}

// FailureMode says how a limit decides while its store is away. The zero value is FailOpen.
type FailureMode uint8

// The failure modes.
const (
	FailOpen    FailureMode = iota // a local share of the limit, admitting when even that cannot be kept
	LocalStrict                    // a stricter local share
	FailClosed                     // refuse
)

// failureModeNames is indexed by FailureMode.
var failureModeNames = [...]string{"fail_open", "local_strict", "fail_closed"}

// String returns the mode as rules spell it, such as "fail_open".
func (m FailureMode) String() string {
	if int(m) < len(failureModeNames) {
		return failureModeNames[m]
	}
	return fmt.Sprintf("failure_mode(%d)", uint8(m))
}
