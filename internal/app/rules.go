package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// WantOrigin returns an error unless the rules have one origin.
func (o *Options) WantOrigin() error {
	var given []string
	for name, is := range map[string]bool{
		"--rules": o.Rules != "", "RUNTIME_ROOT": o.Reference != nil, "--xds-server": o.XDS.Server != "",
		"--rules-from-redis": o.RulesFromRedis,
	} {
		if is {
			given = append(given, name)
		}
	}
	switch {
	case len(given) == 0:
		return errors.New("--rules: want a file or a directory of rules, --xds-server or --rules-from-redis")
	case len(given) > 1:
		slices.Sort(given)
		return fmt.Errorf("%s: want one origin of rules", strings.Join(given, " and "))
	}
	return nil
}

// newRules makes the source of the rules, and begins with what it has.
func (a *App) newRules() error {
	o := config.Options{
		Rules:      rule.Options{DefaultProfile: a.o.DefaultProfile, MergeDomains: a.o.MergeDomains},
		AllowEmpty: a.o.AllowEmptyRules, StateDir: a.o.StateDir, Registerer: a.reg, Logger: a.log,
	}
	if a.people.recorder != nil {
		o.Changed = a.people.recorder.Changed
	}
	a.people.published = config.NewPublished(a.people.ledger, o)
	switch {
	case a.o.RulesFromRedis:
		return a.newPublished(o)
	case a.o.XDS.Server != "":
		return a.newXDS(o)
	case a.o.Reference != nil:
		return a.newFiles(o, config.NewReferenceFiles(*a.o.Reference, config.FilesOptions{Logger: a.log}))
	}
	return a.newFiles(o, config.NewFiles(a.o.Rules, config.FilesOptions{Logger: a.log}))
}

// newFiles reads the files at once, so that a mistake in them is seen where it was made: at the start; unless an earlier
// process left good ones.
func (a *App) newFiles(o config.Options, files *config.Files) (err error) {
	o.Rules.ReadValues = files.ReadValues
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

// newPublished begins with what an earlier process left, since Redis is not waited for.
func (a *App) newPublished(o config.Options) (err error) {
	if a.rules, err = config.New(o); err != nil {
		return err
	}
	a.source, a.nudge = a.people.published, a.people.ledger.Nudge
	if err := a.rules.Restore(); err != nil {
		a.log.Info("there are no rules until Redis has some", "reason", err)
	}
	return nil
}

// newXDS begins with what an earlier process left, since a control plane takes its time, and may be away.
func (a *App) newXDS(o config.Options) error {
	a.o.XDS.Registerer, a.o.XDS.Logger = a.reg, a.log
	client, err := xds.New(a.o.XDS)
	if err != nil {
		return &OptionsError{err}
	}
	o.Rules.MaxFileBytes = client.MaxFileBytes()
	if a.rules, err = config.New(o); err != nil {
		return err
	}
	a.source = client
	a.nudge = func() { a.log.Info("rules come from a control plane, which says by itself when they change") }
	if err := a.rules.Restore(); err != nil {
		a.log.Info("there are no rules until the control plane answers", "reason", err)
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
