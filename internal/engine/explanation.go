package engine

// Explanation says how Decide would answer a request, and why. It is made to be printed as JSON; a field left out does
// not apply. Durations are seconds, and −1 where no wait helps.
type Explanation struct {
	Domain      string                `json:"domain"`
	Known       bool                  `json:"known"` // whether rules name the domain
	Profile     string                `json:"profile,omitempty"`
	Snapshot    string                `json:"snapshot"`        // the hash of the rules
	Peek        *Outcome              `json:"peek,omitempty"`  // if every descriptor only looked
	Asked       *Outcome              `json:"asked,omitempty"` // with the hits asked for
	TooMany     bool                  `json:"too_many_charges,omitempty"`
	Descriptors []ExplainedDescriptor `json:"descriptors"`
}

// Outcome is what Decide would say.
type Outcome struct {
	Over       bool    `json:"over"`
	Shadowed   bool    `json:"shadowed,omitempty"`   // over but for --shadow
	Descriptor *int    `json:"descriptor,omitempty"` // the index of the deciding one
	Rule       string  `json:"rule,omitempty"`
	Limit      string  `json:"limit,omitempty"`
	Remaining  uint32  `json:"remaining"`
	RetryAfter float64 `json:"retry_after_seconds,omitempty"`
}

// ExplainedDescriptor is one descriptor's way to its limits.
type ExplainedDescriptor struct {
	Entries  []string        `json:"entries"`           // key=value
	Matched  []string        `json:"matched,omitempty"` // the entries with those that lookups derive, if they derive any
	Blocked  *ExplainedBlock `json:"blocked,omitempty"`
	Rule     string          `json:"rule,omitempty"` // its path below the domain
	At       string          `json:"at,omitempty"`   // file:line
	Levels   []Level         `json:"levels"`
	Why      string          `json:"why"`
	Override string          `json:"override,omitempty"`

	Exceptions []string          `json:"exceptions,omitempty"` // what operators decided for it, an override each
	Replaced   []string          `json:"replaced,omitempty"`
	Shadow     bool              `json:"shadow,omitempty"`
	Quota      bool              `json:"quota,omitempty"`
	Group      string            `json:"quota_group,omitempty"`
	Unlimited  bool              `json:"unlimited,omitempty"`
	Hits       uint64            `json:"hits"`
	Refund     bool              `json:"refund,omitempty"`
	Charges    []ExplainedCharge `json:"charges,omitempty"`
}

// ExplainedBlock is the entry of the blocklist that refuses a descriptor.
type ExplainedBlock struct {
	Key    string `json:"key"`
	Match  string `json:"match"` // how it is listed; see rule.Block
	Reason string `json:"reason,omitempty"`
	At     string `json:"at"` // file:line
}

// Level is how one entry was matched.
type Level struct {
	Entry string `json:"entry"`
	Match string `json:"match"` // exact, any_of, cidr, wildcard, regex, key only, or none
	Node  string `json:"node,omitempty"`
	At    string `json:"at,omitempty"`
}

// ExplainedCharge is what one limit has to say.
type ExplainedCharge struct {
	Limit      string  `json:"limit,omitempty"` // its name
	Algorithm  string  `json:"algorithm"`
	Requests   uint32  `json:"requests_per_unit"`
	Unit       string  `json:"unit"`
	Multiplier uint32  `json:"unit_multiplier"`
	Period     float64 `json:"period_seconds"`
	Burst      int64   `json:"burst,omitempty"`
	Key        string  `json:"key"` // as Redis sees it
	Unpaid     bool    `json:"unpaid,omitempty"`
	Remaining  uint32  `json:"remaining"`
	Reset      float64 `json:"reset_seconds"`
	PeekOver   bool    `json:"peek_over"`                     // whether one hit more would be refused
	AskedOver  bool    `json:"asked_over"`                    // whether the hits asked for would be
	RetryAfter float64 `json:"retry_after_seconds,omitempty"` // when AskedOver
}
