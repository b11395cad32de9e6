// Package bench makes load and measures it: requests to Envoy's RateLimitService from a client that costs little beside
// the server it measures, their latencies, and the CPU time that server and Redis spend on them.
//
// Run is all of it: a Load says what to send, a Result what came of it. A closed loop (Load.Rate 0) keeps a number of
// requests in flight and so finds the most that a server can do. An open loop sends at moments drawn beforehand (Poisson)
// whether or not answers have come, and measures each from the moment it was due: a server that stalls is charged for
// everyone who would have come meanwhile, which a closed loop hides (coordinated omission).
//
// The client writes HTTP/2 frames itself. grpc-go's takes 10 µs a call beside a server of 8, and halves what two cores that both
// share can do (52,000 a second for 128,000); ours takes 1.5. It sends what gRPC does, reads only what a load needs, and is no client
// for anything else.
//
// The package does not start servers: folder suite does, for `make bench`.
package bench
