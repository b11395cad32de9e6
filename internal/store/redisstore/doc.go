// Package redisstore takes charges in Redis: one script decides and books all charges of a request in one step, exact
// for any number of callers and nodes.
//
// It hides the script and its calling convention, the encoding of buckets, connections, and group commit: requests in
// flight at the same time travel in one call. Its main type is Store. It decides nothing itself, keeps no bucket in
// this process, and has no fallback: while Redis does not answer in time, it says so (store.ErrUnavailable).
package redisstore
