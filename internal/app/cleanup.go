package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// overtime is how long a step may go on after its deadline before it is left behind.
const overtime = time.Second

// cleanup is a stack of named steps that undo what was built. The zero value is an empty stack.
type cleanup struct{ steps []step }

type step struct {
	name string
	undo func(context.Context) error
}

// add puts a step on top; it will be the first to run.
func (c *cleanup) add(name string, undo func(context.Context) error) {
	c.steps = append(c.steps, step{name, undo})
}

// run takes the steps off from the top, every one of them, whatever the others said. Each is given ctx and is left
// behind a second after ctx ends, so that run ends at most that long a step after it. The error joins theirs, each with
// its step's name.
func (c *cleanup) run(ctx context.Context, log *slog.Logger) error {
	var errs []error
	for len(c.steps) > 0 {
		s := c.steps[len(c.steps)-1]
		c.steps = c.steps[:len(c.steps)-1]
		if err := s.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		log.Debug("stopped", "step", s.name)
	}
	return errors.Join(errs...)
}

func (s step) run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- s.undo(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(overtime)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return fmt.Errorf("still busy after its deadline: %w", context.Cause(ctx))
	}
}
