// Package config turns what operators write into the current rules, while the process runs.
//
// A Source says what the rules are: Files reads them from disk and watches them, Published has those that people publish
// in a ledger, package xds asks a control plane. Live compiles every version whole and publishes it through one atomic
// pointer: readers load the current snapshot once a request, and nothing subscribes. A version that is bad, empty or gone
// changes nothing but gauges and a counter, and comes back as an error; the last good rules stay, and survive the process
// in a state directory.
//
// The package hides where rules come from and when they change. It decides nothing, and does not know what a rule
// means: that is package rule.
package config
