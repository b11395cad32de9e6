package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"time"
)

// Entry is one line of the audit log. Immutable once it is there.
type Entry struct {
	Seq    int64             `json:"seq"`              // 1, 2, 3, …
	Time   time.Time         `json:"time"`             // UTC, whole microseconds, by the clock of Node
	Node   string            `json:"node"`             // the process that made the change
	Who    string            `json:"who"`              // who wanted it
	What   string            `json:"what"`             // what was done, such as "override.set"
	On     string            `json:"on,omitempty"`     // what it was done to
	Why    string            `json:"why,omitempty"`    // the reason its maker gave
	Before string            `json:"before,omitempty"` // what was there
	After  string            `json:"after,omitempty"`  // what is there now
	Sets   map[string]string `json:"sets,omitempty"`   // by field of the state, the SHA-256 of its value in hex; "": it is gone
	Prev   string            `json:"prev"`             // Hash of the entry before; "" at the first
	Hash   string            `json:"hash"`             // SHA-256 in hex of everything above
}

// seal returns the hash of everything in e but the hash itself. Each part goes in behind its length, so that no two
// entries read the same.
func (e *Entry) seal() string {
	h := sha256.New()
	number := func(n int64) { h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	text := func(parts ...string) {
		for _, p := range parts {
			number(int64(len(p)))
			h.Write([]byte(p))
		}
	}
	text("ratelimitd audit entry 1")
	number(e.Seq)
	number(e.Time.UnixMicro())
	text(e.Node, e.Who, e.What, e.On, e.Why, e.Before, e.After)
	number(int64(len(e.Sets)))
	for _, field := range slices.Sorted(maps.Keys(e.Sets)) {
		text(field, e.Sets[field])
	}
	text(e.Prev)
	return hex.EncodeToString(h.Sum(nil))
}

// Digest returns the SHA-256 of a value in hex, as Entry.Sets and Change.Blobs name it.
func Digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}
