package main

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
	v1connect "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1/ratelimitdv1connect"
)

func nodesCommand() *cobra.Command {
	f := new(adminFlags)
	var out output
	cmd := &cobra.Command{
		Use: "nodes", Short: "List the nodes of a deployment, and the versions that they have", Args: cobra.NoArgs,
		Long: `List the nodes that have reported within the last minute: which rules each has, the last entry of the
audit log that it has acted on, and what was wrong with the last version of the rules that it saw.`,
		Example: `  ratelimitd nodes`,
		RunE: calls(f, func(ctx context.Context, cmd *cobra.Command, c v1connect.AdminServiceClient, _ []string) error {
			r, err := c.ListNodes(ctx, &v1.ListNodesRequest{})
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), message(r), func(w io.Writer) {
				lines := [][]string{{"NODE", "BUILD", "REPORTED", "RULES", "FROM", "AUDIT", "PROBLEM"}}
				for _, n := range r.GetNodes() {
					from := strings.TrimSpace(n.GetRulesOrigin() + " " + n.GetRulesOriginVersion())
					problem, _, _ := strings.Cut(n.GetRulesError(), "\n")
					lines = append(lines, []string{
						n.GetName(), n.GetBuild(), stamp(n.GetReportTime()), dash(short(n.GetRulesHash())), dash(from),
						strconv.FormatInt(n.GetSequence(), 10), dash(problem),
					})
				}
				columns(w, lines)
			})
		}),
	}
	f.addTo(cmd)
	out.addTo(cmd)
	return cmd
}

func grantCommand() *cobra.Command {
	f := new(adminFlags)
	var m motive
	var hits int64
	var out output
	cmd := &cobra.Command{
		Use: "grant REQUEST", Short: "Give hits back to the buckets of a request", Args: cobra.ExactArgs(1),
		Long: `Give hits back to every bucket that a request would charge, never more than were spent, and print what
is left in each. In a sliding window those of the current window are given back.`,
		Example: `  # Give one user everything back
  ratelimitd grant 'shop | [tier=pro, user=u1]' --author ann --reason "our mistake"`,
		RunE: calls(f, func(ctx context.Context, cmd *cobra.Command, c v1connect.AdminServiceClient, args []string) error {
			if err := m.check(); err != nil {
				return err
			}
			r, err := c.GrantHits(ctx, &v1.GrantHitsRequest{Request: args[0], Hits: hits, Author: m.author, Reason: m.reason})
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), message(r), func(w io.Writer) {
				lines := [][]string{{"LIMIT", "REMAINING", "KEY"}}
				for _, b := range r.GetBuckets() {
					lines = append(lines, []string{b.GetRule(), strconv.FormatInt(b.GetRemaining(), 10), b.GetKey()})
				}
				columns(w, lines)
			})
		}),
	}
	cmd.Flags().Int64Var(&hits, "hits", 0, "how many (0: all)")
	f.addTo(cmd)
	m.addTo(cmd)
	out.addTo(cmd)
	return cmd
}
