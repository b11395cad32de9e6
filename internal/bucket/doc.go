// Package bucket is the arithmetic of rate limiting: pure integer functions that say what a bucket grants, and their
// twins in Lua, side by side. SPEC.md is its specification.
//
// It hides how a limit becomes ticks and credits, and how three families of algorithm keep their state. Its main types
// are Limit, which exists only if it is valid, State, one bucket's memory, and the Ask and Outcome of Limit.Take. It
// reads no clock and does no I/O: the time is an argument, in microseconds since the Unix epoch. It knows one bucket at
// a time; what a request does to several is the store's.
package bucket
