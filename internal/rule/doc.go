// Package rule turns rule files into rules and descriptors into the rule that applies.
//
// It hides the schema of rule files (which is that of envoyproxy/ratelimit, and more), their checking, and how a descriptor
// is matched. Load reads files whole, decode → defaults → validate → compile, each a function of its own, and returns an immutable
// Snapshot or every error at once, each with its file, line, column and path. What loads but is probably a mistake comes back as a
// Warning. Domain.Blocked says whether an entry is listed as refused, and Lookups.Derive adds the entries that are derived from others. Domain.Match finds the Rule that a descriptor's entries reach, without allocation and without looking at every sibling.
//
// It knows no store and no request beyond its entries: what a limit's numbers mean is bucket's, how several rules of a request
// combine is engine's, and when files are read again is config's.
package rule
