// Package bench makes load and measures it: requests to Envoy's RateLimitService from a client that costs little beside
// the server it measures, their latencies, and the CPU time that server and Redis spend on them.
//
// Run is all of it: a Load says what to send, a Result what came of it. A closed loop (Load.Rate 0) keeps a number of
// requests in flight and so finds the most that a server can do. An open loop sends at moments drawn beforehand (Poisson)
// whether or not answers have come, and measures each from the moment it was due: a server that stalls is charged for
// everyone who would have come meanwhile, which a closed loop hides (coordinated omission).
//
// The client writes HTTP/2 frames itself. grpc-go's spends more on a call than the server does, and on a machine that both
// share it would be the client that is measured. It sends what gRPC does, reads only what a load needs, and is no client
// for anything else.
//
// The package does not start servers: folder suite does, for `make bench`.
package bench
