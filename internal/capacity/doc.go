// Package capacity is arithmetic on paper: how many nodes and shards a load needs, what limit a service can afford, and what
// a bucket does to a stream of requests. docs/capacity.md has the same by hand, with worked examples, which the tests hold it
// to. Nothing here decides a request, so numbers are floats.
package capacity
