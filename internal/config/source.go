package config

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// Source says what the rules are.
type Source interface {
	// Run delivers the rules, and delivers them again whenever they change, until ctx ends; then it returns nil. It
	// calls deliver from one goroutine, so that no older version comes after a newer one, and it goes on for ever
	// where trying again may help: an error means that nothing more will come.
	Run(ctx context.Context, deliver func(Update)) error
}

// Update is one whole version of the rules, as a Source found it.
type Update struct {
	Origin  string      // where it comes from, for people: "file /etc/rules", "xds control-plane:18001"
	Version string      // the origin's own name of it, of no meaning here; "" if it has none
	Files   []rule.File // all of the rules
	Err     error       // why there are no Files: they could not be read

	// Done, if set, is told what became of the update before deliver returns: nil if its rules are current.
	Done func(error)
}
