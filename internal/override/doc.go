// Package override is what operators decide on top of the rules: for a while, and each with a name to it, they raise or
// lower a limit, exempt callers from it or block them.
//
// An Override says what it means and whom it meets; a Keeper knows those that are in force, as they are set, removed and
// run out, and keeps them in package ledger. What an override does to a decision is package engine's. It is not to be
// confused with the limit that a request itself may carry, which the wire calls by the same name.
package override
