// Package cases runs unit tests of limits: requests at given times, and the answers expected of them, on an engine and a
// store of their own whose clock is the test's.
//
//	cases:
//	  - name: a gold user bursts, then goes at the rate
//	    steps:
//	      - ask: shop | [plan=gold, user=u1] | hits=100
//	        want: OK {r0}
//	      - ask: shop | [plan=gold, user=u1]
//	        want: OVER
//	        wait: 600ms
//	      - at: 600ms
//	        ask: shop | [plan=gold, user=u1]
//	        want: OK
//
// Parse reads such a file, Set.Run runs it and tells what was not as expected, with file and line. The package hides how
// time is made; the one-line form of requests and answers is package shorthand's.
package cases
