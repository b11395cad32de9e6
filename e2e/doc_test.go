// Package e2e_test asks ratelimitd as its users do: through a real Envoy, over real sockets, on memory and on Redis.
//
// A test states its rules and Envoy's routes side by side, starts a stack of them (see stack), and sends requests as a
// client would. It needs Envoy, redis-server and curl, which `make tools` sees to; a missing one fails the test.
package e2e_test
