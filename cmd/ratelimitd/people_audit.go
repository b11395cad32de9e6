package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
	v1connect "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1/ratelimitdv1connect"
	"github.com/ratelimitd/ratelimitd/internal/ledger"
)

func auditCommand() *cobra.Command {
	f := new(adminFlags)
	return group(f, "audit", "Read the audit log", `Read the log of every change of rules and overrides: who made it, when and why. Each entry has the
hash of the one before it, so that none can be altered or left out unseen.`,
		`  ratelimitd audit list
  ratelimitd audit verify`,
		auditList(f), auditVerify(f))
}

func auditList(f *adminFlags) *cobra.Command {
	var out output
	var from int64
	var limit int32
	cmd := &cobra.Command{
		Use: "list", Short: "List the last entries", Args: cobra.NoArgs,
		Long: `List entries of the audit log, in order: the last ones, or those from a number on. -o json prints all
of each entry, with what was before and after.`,
		Example: `  ratelimitd audit list --limit 20
  ratelimitd audit list --from 1 -o json`,
		RunE: calls(f, func(ctx context.Context, cmd *cobra.Command, c v1connect.AdminServiceClient, _ []string) error {
			r, err := c.ListAuditEntries(ctx, &v1.ListAuditEntriesRequest{Sequence: from, Limit: limit})
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), message(r), func(w io.Writer) {
				lines := [][]string{{"ENTRY", "TIME", "WHO", "WHAT", "ON", "WHY"}}
				for _, e := range r.GetEntries() {
					lines = append(lines, []string{
						strconv.FormatInt(e.GetSequence(), 10), stamp(e.GetTime()), e.GetWho(), e.GetWhat(), dash(e.GetOn()), dash(e.GetWhy()),
					})
				}
				columns(w, lines)
			})
		}),
	}
	cmd.Flags().Int64Var(&from, "from", 0, "the number of the first `entry` (0: the last ones)")
	cmd.Flags().Int32Var(&limit, "limit", 100, "at most so many, up to 1000")
	out.addTo(cmd)
	return cmd
}

func auditVerify(f *adminFlags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "verify", Short: "Check that the whole log is what was written", Args: cobra.NoArgs,
		Long: `Read the whole log, and print its last entry and that entry's hash: noted elsewhere, it shows later that
nobody wrote the log anew. The exit code is 1 if an entry was altered, left out or moved, or if a
setting is not what the log says; the first such entry is named.`,
		Example: `  ratelimitd audit verify
  ratelimitd audit verify --file /var/lib/ratelimitd/audit.jsonl`,
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			v, err := verified(cmd.Context(), f, file)
			if err != nil {
				return err
			}
			if v.Entries == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "whole: no entries")
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "whole: entries %d to %d, the last with hash %s\n", v.First, v.Last, v.Hash)
			return nil
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "check this `file` of a state directory, without a server")
	return cmd
}

// verified checks a file, or asks a server to check its log.
func verified(ctx context.Context, f *adminFlags, file string) (*ledger.Verified, error) {
	if file != "" {
		return ledger.VerifyFile(file)
	}
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	r, err := c.VerifyAudit(ctx, &v1.VerifyAuditRequest{})
	if err != nil {
		return nil, f.called(err)
	}
	if r.GetBroken() != "" {
		return nil, errors.New(r.GetBroken())
	}
	v := &ledger.Verified{First: r.GetFirstSequence(), Last: r.GetLastSequence(), Hash: r.GetLastHash()}
	if v.First > 0 {
		v.Entries = v.Last - v.First + 1
	}
	return v, nil
}
