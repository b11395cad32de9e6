// Package script reads and runs the vectors of internal/bucket/testdata: little plays about a bucket over time, which the
// arithmetic and every store perform alike.
//
// It hides the language. A file is lines; what follows # is a comment. A file begins with a bucket under its first limit,
// absent, at 2030-01-01T00:00:00Z, which is time 0s. Its commands:
//
//	limit token_bucket 20 per second burst 100
//	limit gcra 10 per 20 seconds
//	limit leaky_bucket 50 per second burst 25 max_delay 500ms
//	limit fixed_window 10 per month calendar Europe/Berlin
//	limit fixed_window 10 per hour debt 5 envoy
//
// From here on buckets are asked under this limit. Their states stay as they are.
//
//	bucket NAME
//
// From here on this bucket is asked; it is absent if the name is new.
//
//	clock 2028-02-29T23:59:30Z
//
// From here on this instant is 0s. It may lie before what was now.
//
//	at 1.5s take 7 -> allowed remaining 0 reset 2s
//	at 2s take 7 -> denied remaining 3 retry 200ms reset 5s
//	at 2s take 7 at least 2 -> allowed granted 3 remaining 0 reset 5s
//	at 2s take 7 waiting 100ms -> denied remaining 3 retry 50ms reset 5s
//	at 2s peek -> denied remaining 0 retry 10ms reset 5s
//
// One ask and its answer. A take takes all or nothing; with "waiting" it accepts a delay in a queue up to that (otherwise up to
// the limit's own), and an admitted one says "delay 20ms". "granted" is told when it is not what was asked for. "retry never" is a
// charge that no wait helps. "report 7" is booked even if refused, as far as the debt goes; "count 7" is what profile envoy
// does: a refused charge is counted too.
//
//	at 3s take 4 as lunch -> allowed remaining 6 reset 4s
//	at 4s give back 3 of lunch -> allowed granted -3 remaining 9 reset 1s
//	at 4s give back 3 -> allowed granted -1 remaining 10 reset 0s
//
// Hits given back, with or without the tick of the grant they are from.
//
//	from 0s to 10s every 20ms take 1 -> 300 allowed, 200 denied, first denied at 3.34s
//
// Many asks, the last one before the end, and how many were allowed.
package script
