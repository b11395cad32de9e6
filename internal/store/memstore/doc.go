// Package memstore is the store of this process: it keeps buckets in memory and takes charges under locks.
//
// It hides sharding, eviction and memory layout. Its main type is Store. It never waits and never errs: when it is full of
// buckets that matter it says so by a metric and decides by the charge's failure mode. It keeps nothing across a restart.
package memstore
