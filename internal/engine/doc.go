// Package engine makes one decision: may this request pass?
//
// It hides how a request becomes charges and how their decisions become an answer. Decide matches descriptors to rules,
// plans the charges, has a store take them and builds the verdict; Explain says why, and spends nothing. The engine does
// no arithmetic of its own (package bucket), knows no rule syntax (package rule), does not know where a charge is paid
// (package store) and has never heard of a wire.
//
// # Glossary
//
// One word, one meaning, here and in every other package:
//
//   - domain: a name space of rules, chosen by the caller.
//   - descriptor: a list of entries of one request; each is judged and answered on its own.
//   - entry: one key and value.
//   - hits: what a descriptor costs; 0 is a peek, given back they are a refund.
//   - blocklist: entries that refuse their request before anything else.
//   - lookup: derives an entry of a descriptor from another before it is matched.
//   - rule: a configured node that a descriptor reaches by its entries.
//   - limit: how many hits a rule grants in a period; a rule has none, one or several.
//   - override: a limit that the request itself carries for a descriptor.
//   - bucket: the state of one limit for one set of values.
//   - burst: the most hits a bucket grants at one instant.
//   - charge: what a request asks of one bucket.
//   - vote: what a refused charge does to its request: refuse it, nothing, or refuse it with the rest of its group.
//   - partition: an entry whose value keeps buckets together in one slot of a cluster.
//   - shadow: counted and answered, but never refused; of a rule, or of the whole service.
//   - quota group: limits that refuse a request only if all of them do.
//   - decision: a store's answer to one charge.
//   - origin: where a decision was paid.
//   - verdict: the answer to a request; a status is its part for one descriptor.
//   - stricter: the order of statuses; the strictest one speaks for a descriptor with several limits, and in headers.
//   - snapshot: one set of rules, compiled and never changed; a view is a snapshot as the engine uses it.
//   - plan: the scratch of one decision.
package engine
