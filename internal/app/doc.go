// Package app is the process as a value: New builds it, Start serves, Stop undoes everything in reverse, and Addr says
// where it listens. Run is all of that until a context ends.
//
// It hides how the rooms are wired, in which order they start and stop, and what is told about the process: metrics,
// traces, the admin pages. It decides nothing, and reads neither flags nor environment: those are translated into
// Options by cmd/ratelimitd.
package app
