// Package limiter hides where a charge is paid. A Limiter is a store.Store over a store.Store: a request is denied from
// memory if the store is sure to deny it, else goes to the store through a circuit breaker a shard, and whatever the
// store could not take is decided on buckets of this process, by each limit's own failure mode:
//
//	denied recently → breaker → store → fallback
//
// Main types: Limiter and its Options, Topology (which shard of the store a charge belongs to), Nodes (how many nodes
// share the limits). With the store healthy and Options.Remember negative it changes no answer. It keeps no bucket itself, knows no rules, and starts
// no goroutine while the store answers.
package limiter
