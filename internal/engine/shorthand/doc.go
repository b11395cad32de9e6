// Package shorthand reads and writes the one-line form of requests and answers that people type, tests state and
// explanations print:
//
//	shop | [plan=gold, user=u1] [ip=10.0.0.1]h0 | hits=2      a request
//	OVER {OK r9, OVER r0, none}                               an answer
//
// A request is a domain, its descriptors and, if given, its hits. A descriptor in brackets lists its entries; after the
// bracket may follow its own hits (h5; h0 is a peek, h-5 gives five back) and a limit of its own (L10/minute,
// L10/5minute). A domain, key or value that holds one of the marks is written as a quoted Go string, so that any bytes
// can be asked for: [path="a, b]\xff"].
//
// An answer is the overall code, then a status for every descriptor: its code and what remains, or none where no
// limit applies.
//
// The package hides the grammar, and decides nothing.
package shorthand
