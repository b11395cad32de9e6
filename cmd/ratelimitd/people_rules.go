package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
	v1connect "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1/ratelimitdv1connect"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

func rulesCommand() *cobra.Command {
	f := new(adminFlags)
	return group(f, "rules", "Publish the rules of a deployment", `Publish the rules of nodes that take theirs from Redis (serve --rules-from-redis), through the
admin port of any of them. Versions are numbered; the last 20 can be rolled back to.`,
		`  ratelimitd rules diff examples/rules
  ratelimitd rules apply examples/rules --author ann --reason "ticket 4711"
  ratelimitd rules history
  ratelimitd rules rollback 1 --author ann --reason "too strict"`,
		rulesGet(f), rulesDiff(f), rulesApply(f), rulesHistory(f), rulesRollback(f))
}

// bundle reads the files of a path, by names that do not depend on this machine.
func bundle(path string) ([]*v1.RuleFile, error) {
	files, err := config.Read(path)
	if err != nil {
		return nil, err
	}
	out := make([]*v1.RuleFile, len(files))
	for i, file := range files {
		out[i] = &v1.RuleFile{Name: filepath.Base(file.Name), Data: file.Data}
	}
	return out, nil
}

// diff asks what files would change, and says on w what looks wrong in them; mistakes are the error.
func diff(ctx context.Context, w io.Writer, c v1connect.AdminServiceClient, files []*v1.RuleFile) (*v1.DiffRulesResponse, error) {
	d, err := c.DiffRules(ctx, &v1.DiffRulesRequest{Files: files})
	if err != nil {
		return nil, err
	}
	for _, warning := range d.GetWarnings() {
		writeLine(w, "%s", warning)
	}
	if len(d.GetErrors()) > 0 {
		for _, mistake := range d.GetErrors() {
			writeLines(w, mistake)
		}
		return nil, &exitError{exitFailure, nil}
	}
	return d, nil
}

func rulesGet(f *adminFlags) *cobra.Command {
	var version int64
	var dir string
	var out output
	cmd := &cobra.Command{
		Use: "get", Short: "Print the current rules, or those of a version",
		Long: `Print the files of the current version, or of one that is kept. Of rules that are not published,
print where they come from and their hash.`,
		Example: `  ratelimitd rules get
  ratelimitd rules get --version 1 --to ./rules`,
		Args: cobra.NoArgs,
		RunE: calls(f, func(ctx context.Context, cmd *cobra.Command, c v1connect.AdminServiceClient, _ []string) error {
			r, err := c.GetRules(ctx, &v1.GetRulesRequest{Version: version})
			if err != nil {
				return err
			}
			if dir != "" {
				return unpack(dir, r.GetFiles())
			}
			return out.print(cmd.OutOrStdout(), message(r), func(w io.Writer) {
				if len(r.GetFiles()) == 0 {
					writeLine(w, "origin %s %s", r.GetOrigin(), r.GetOriginVersion())
					writeLine(w, "hash %s", r.GetHash())
				}
				for _, file := range r.GetFiles() {
					writeLine(w, "# %s", file.GetName())
					fmt.Fprintf(w, "%s", file.GetData()) // as it was published
				}
			})
		}),
	}
	cmd.Flags().Int64Var(&version, "version", 0, "which `version` (0: the current one)")
	cmd.Flags().StringVar(&dir, "to", "", "write its files into this `directory` instead, which is made if need be")
	out.addTo(cmd)
	return cmd
}

func unpack(dir string, files []*v1.RuleFile) error {
	if len(files) == 0 {
		return errors.New("the rules of this node are not published: there are no files to write")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		name := file.GetName()
		if name != filepath.Base(name) || name == "." || name == ".." {
			return fmt.Errorf("file %q: want a plain name", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), file.GetData(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func rulesDiff(f *adminFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use: "diff DIR|FILE", Short: "Say what rules would change",
		Long: `Compare rules with the current ones, limit by limit: + is new, - goes, ~ changes, and where buckets
would start afresh it says so. Mistakes in the rules are printed with their places, and the exit
code is 1.`,
		Example: `  ratelimitd rules diff examples/rules`,
		Args:    cobra.ExactArgs(1),
		RunE: calls(f, func(ctx context.Context, cmd *cobra.Command, c v1connect.AdminServiceClient, args []string) error {
			files, err := bundle(args[0])
			if err != nil {
				return err
			}
			d, err := diff(ctx, cmd.ErrOrStderr(), c, files)
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), message(d), func(w io.Writer) {
				for _, line := range d.GetChanges() {
					writeLine(w, "%s", line)
				}
				if len(d.GetChanges()) == 0 {
					fmt.Fprintln(cmd.ErrOrStderr(), "no difference")
				}
			})
		}),
	}
	out.addTo(cmd)
	return cmd
}

func rulesApply(f *adminFlags) *cobra.Command {
	var m motive
	var expect int64
	cmd := &cobra.Command{
		Use: "apply DIR|FILE", Short: "Publish rules", Args: cobra.ExactArgs(1),
		Long: `Publish rules as the next version, and print its number. What they change is said first. If
somebody else publishes a version meanwhile, nothing is published.`,
		Example: `  ratelimitd rules apply examples/rules --author ann --reason "ticket 4711"`,
		RunE: calls(f, func(ctx context.Context, cmd *cobra.Command, c v1connect.AdminServiceClient, args []string) error {
			if err := m.check(); err != nil {
				return err
			}
			files, err := bundle(args[0])
			if err != nil {
				return err
			}
			d, err := diff(ctx, cmd.ErrOrStderr(), c, files)
			if err != nil {
				return err
			}
			for _, line := range d.GetChanges() {
				writeLine(cmd.ErrOrStderr(), "%s", line)
			}
			if expect < 0 {
				expect = d.GetVersion()
			}
			r, err := c.ApplyRules(ctx, &v1.ApplyRulesRequest{Files: files, ExpectedVersion: expect, Author: m.author, Reason: m.reason})
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), r.GetVersion().GetVersion())
			return nil
		}),
	}
	m.addTo(cmd)
	cmd.Flags().Int64Var(&expect, "expect", -1, "the `version` that these rules follow (-1: whichever is current)")
	return cmd
}

func rulesHistory(f *adminFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use: "history", Short: "List the versions that are kept, the newest first", Args: cobra.NoArgs,
		Long:    `List the published versions that are kept, 20 at most: who published each, when and why.`,
		Example: `  ratelimitd rules history`,
		RunE: calls(f, func(ctx context.Context, cmd *cobra.Command, c v1connect.AdminServiceClient, _ []string) error {
			r, err := c.ListRuleVersions(ctx, &v1.ListRuleVersionsRequest{})
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), message(r), func(w io.Writer) {
				lines := [][]string{{"VERSION", "TIME", "AUTHOR", "HASH", "REASON"}}
				for _, v := range r.GetVersions() {
					reason := v.GetReason()
					if v.GetRollbackOf() > 0 {
						reason = fmt.Sprintf("(back to %d) %s", v.GetRollbackOf(), reason)
					}
					lines = append(lines, []string{
						strconv.FormatInt(v.GetVersion(), 10), stamp(v.GetCreateTime()), v.GetAuthor(), short(v.GetHash()), reason,
					})
				}
				columns(w, lines)
			})
		}),
	}
	out.addTo(cmd)
	return cmd
}

func rulesRollback(f *adminFlags) *cobra.Command {
	var m motive
	var expect int64
	cmd := &cobra.Command{
		Use: "rollback VERSION", Short: "Publish an earlier version anew", Args: cobra.ExactArgs(1),
		Long: `Publish the content of an earlier version as the next one, and print its number. Which versions there
are, rules history says.`,
		Example: `  ratelimitd rules rollback 1 --author ann --reason "too strict"`,
		RunE: calls(f, func(ctx context.Context, cmd *cobra.Command, c v1connect.AdminServiceClient, args []string) error {
			if err := m.check(); err != nil {
				return err
			}
			to, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || to < 1 {
				return usagef("%q: want the number of a version", args[0])
			}
			if expect < 0 {
				now, err := c.GetRules(ctx, &v1.GetRulesRequest{})
				if err != nil {
					return err
				}
				expect = now.GetPublished().GetVersion()
			}
			r, err := c.RollbackRules(ctx, &v1.RollbackRulesRequest{Version: to, ExpectedVersion: expect, Author: m.author, Reason: m.reason})
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), r.GetVersion().GetVersion())
			return nil
		}),
	}
	m.addTo(cmd)
	cmd.Flags().Int64Var(&expect, "expect", -1, "the `version` that is current (-1: whichever is)")
	return cmd
}

// short cuts a hash to what people compare.
func short(hash string) string {
	if len(hash) > 12 {
		return hash[:12]
	}
	return strings.TrimSpace(hash)
}
