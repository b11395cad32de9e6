package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// origins lists the origins of rules that are given, by the names of their settings.
func (o *Options) origins() (names []string) {
	for _, origin := range []struct {
		name  string
		given bool
	}{
		{"--rules", o.Rules != ""},
		{"RUNTIME_ROOT", o.Reference != nil},
	} {
		if origin.given {
			names = append(names, origin.name)
		}
	}
	return names
}

// newRules makes the source of the rules. Files are read at once, so that a mistake in them is seen where it was made: at
// the start; unless an earlier process left good ones.
func (a *App) newRules() error {
	var err error
	o := config.Options{
		Rules:      rule.Options{DefaultProfile: a.o.DefaultProfile, MergeDomains: a.o.MergeDomains},
		AllowEmpty: a.o.AllowEmptyRules, StateDir: a.o.StateDir, Registerer: a.reg, Logger: a.log,
	}
	var files *config.Files
	switch {
	case a.o.Reference != nil:
		files = config.NewReferenceFiles(*a.o.Reference, config.FilesOptions{Logger: a.log})
	default:
		files = config.NewFiles(a.o.Rules, config.FilesOptions{Logger: a.log})
	}
	if a.rules, err = config.New(o); err != nil {
		return err
	}
	a.source, a.nudge = files, files.Nudge
	if err := a.rules.Begin(files.Update()); err != nil {
		if !a.o.StartWithoutRules {
			return fmt.Errorf("load rules: %w", err)
		}
		a.log.Error("there are no rules, calls are answered with an error until there are", "error", err)
	}
	return nil
}

// Reload has the rules read again, soon. If they are wrong, the last good ones stay and the log has every problem;
// /config and the metrics tell of it as well.
func (a *App) Reload() { a.nudge() }

// followRules keeps the rules current until ctx ends.
func (a *App) followRules(ctx context.Context) {
	if err := a.rules.Run(ctx, a.source); err != nil && !errors.Is(err, context.Canceled) {
		a.log.Error("rules are not followed any more", "error", err)
	}
}

// await says "serving" as soon as there are rules to serve, or at once if that is wanted. Undone, it does so no more.
func (a *App) await() {
	if !a.o.StartWithoutRules {
		select {
		case <-a.rules.Ready():
		default:
			a.log.Warn("there are no rules yet: health says not serving until they arrive")
			a.undo.add("stop waiting for rules", background(func(ctx context.Context) {
				select {
				case <-a.rules.Ready():
					a.join()
				case <-ctx.Done():
				}
			}))
			return
		}
	}
	a.join()
}

// join says "serving".
func (a *App) join() {
	a.serving.Store(true)
	a.grpc.SetServing(true)
}
