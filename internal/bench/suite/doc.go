// Command suite is `make bench` and `make bench-growth`: it starts servers, loads them by package bench, turn and turn about,
// and prints what decisions cost, as tables, ratios and curves.
//
// A figure of one run is never compared with one of another: what counts is its ratio to the floor's of the same run.
package main
