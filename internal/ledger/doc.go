// Package ledger keeps what people changed while the service runs: the settings they made, and the audit log of who made
// which one, when and why.
//
// A change of settings and its entry in the log are one write, so that a process that is killed leaves both or neither.
// Every entry carries the hash of the one before it and of every value it set: nobody edits an entry, takes one out or
// changes a setting behind the log's back unseen; see Verify. There is one order of changes, and a change is made on the
// state that its maker saw, or not at all.
//
// Main types: Ledger, made by NewRedis for all processes of a deployment or by OpenFile for one; State; Entry. The
// package hides where they are kept. It does not know what a setting means.
package ledger
