// Command ratelimitd serves rate-limit decisions, and helps to write, try and understand their rules.
//
// It reads flags, environment and a config file, and turns them into app.Options and calls of the other rooms; exit
// codes and what is printed are its own. One file holds one subcommand.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// The exit codes, the same for every command.
const (
	exitOK          = 0 // done; the request is allowed
	exitFailure     = 1 // it could not be done, or rules are wrong
	exitUsage       = 2 // the command line, the environment or the config file is wrong
	exitFindings    = 3 // the request is denied; the rules load, but something in them looks wrong
	exitUnreachable = 4 // a server or its Redis could not be reached, or did not answer
)

func main() { os.Exit(run(asCalled(os.Args), os.Stdout, os.Stderr)) }

// run executes one command and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	exit := (*exitError)(nil)
	if !errors.As(err, &exit) {
		// Cobra's own complaints: an unknown command or flag, too many arguments.
		exit = &exitError{exitUsage, err}
	}
	complain(stderr, exit.err)
	if exit.code == exitUsage {
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
	return exit.code
}

// complain says what went wrong. Mistakes in rules are said as they are, file:line:col first, so that editors and
// people find the place.
func complain(w io.Writer, err error) {
	var mistakes rule.Errors
	switch {
	case err == nil:
	case errors.As(err, &mistakes):
		writeLines(w, mistakes.Error())
	default:
		for line := range strings.SplitSeq(err.Error(), "\n") {
			writeLine(w, "ratelimitd: %s", line)
		}
	}
}

// exitError ends the process with a code. Without an error everything has been said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef returns an error of the caller's making.
func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "ratelimitd",
		Short: "Decide whether requests may pass",
		Long: `ratelimitd answers one question, for proxies that speak Envoy's rate limit
service: may this request pass? It reads its limits from YAML files, those of
envoyproxy/ratelimit included, and counts in memory or in Redis.

Every flag can also be given as an environment variable (--grpc-addr is
RATELIMITD_GRPC_ADDR) or in a YAML file of flag names that --config names. A flag
wins over the environment, the environment over the file, the file over the
default.

Data goes to standard output, everything else to standard error. Exit codes:
  0  done; the request is allowed
  1  it could not be done, or the rules are wrong
  2  the command line, the environment or the config file is wrong
  3  the request is denied, or a check has findings
  4  the server, or its Redis, could not be reached or did not answer`,
		Example: `  # Serve the rules of a directory, counting in memory
  ratelimitd serve --rules examples/rules

  # What would happen to this request, and why?
  ratelimitd explain --rules examples/rules 'shop | [tier=pro, user=u1]'

  # Ask a running server
  ratelimitd call 'shop | [tier=pro, user=u1]'`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(badFlag)
	root.PersistentFlags().String("config", "", "read settings from this YAML `file`: flag names and their values")
	root.AddCommand(serveCommand(), checkCommand(), explainCommand(), keyCommand(), callCommand(), testCommand(),
		benchCommand(), sizeCommand(), rulesCommand(), overrideCommand(), grantCommand(), auditCommand(), nodesCommand(), versionCommand())
	inOrder(root)
	return root
}

// inOrder has help pages list flags as they were made, which their words follow: "its key", "or", "likewise".
func inOrder(cmd *cobra.Command) {
	cmd.Flags().SortFlags, cmd.PersistentFlags().SortFlags = false, false
	for _, c := range cmd.Commands() {
		inOrder(c)
	}
}

// runs wraps what a command does: settings are completed first, and whatever it returns ends with exit code 1 unless
// it chose another.
func runs(do func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return runsWith(nil, do)
}

// runsWith is runs with more settings, which are made after the environment's and before the config file's.
func runsWith(more func(*cobra.Command) []error, do func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := completeSettings(cmd, os.LookupEnv, more); err != nil {
			return &exitError{exitUsage, err}
		}
		err := do(cmd, args)
		if exit := (*exitError)(nil); err != nil && !errors.As(err, &exit) {
			return &exitError{exitFailure, err}
		}
		return err
	}
}
