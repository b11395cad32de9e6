// Package config turns what operators write into the current rules, while the process runs.
//
// Files reads rules from a directory or a file, compiles them whole, and publishes them through one atomic pointer:
// readers load the current snapshot once a request, and nothing subscribes. A new version that is bad, empty or gone
// changes nothing but gauges and a counter, and comes back as an error; the last good rules stay.
//
// The package hides where rules come from and when they change. It decides nothing, and does not know what a rule
// means: that is package rule.
package config
