package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
	v1connect "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1/ratelimitdv1connect"
)

func overrideCommand() *cobra.Command {
	f := new(adminFlags)
	return group(f, "override", "Change limits for a while", `Raise or lower a limit, exempt callers from it or block them, for a while and at once on every
node, on top of the rules. Each override needs an expiry, an author and a reason. Nodes keep them in
Redis (serve --redis-url) or, one node alone, in serve --state-dir.`,
		`  ratelimitd override set --rule shop.pro-minute --requests 6000 --for 2h --author ann --reason "ticket 4711"
  ratelimitd override list
  ratelimitd override rm o-ddbc2622024b --author ann --reason over`,
		overrideSet(f), overrideList(f), overrideRemove(f))
}

func overrideSet(f *adminFlags) *cobra.Command {
	var m motive
	var o v1.Override
	var entry, until string
	var ttl time.Duration
	var exempt, block bool
	cmd := &cobra.Command{
		Use: "set", Short: "Set an override, and print its ID", Args: cobra.NoArgs,
		Long: `Set an override, and print its ID. It names a limit, or an entry, or both; an override with the
same target is replaced. What was spent stays spent.

A limit is named as ratelimitd check prints it in the column NAME: DOMAIN.NAME, such as shop.pro-minute,
or DOMAIN.PATH of a limit without a name.`,
		Example: `  # Ten times the pro tier's limit a minute for two hours
  ratelimitd override set --rule shop.pro-minute --requests 6000 --for 2h --author ann --reason "ticket 4711"

  # No limit for one user of it
  ratelimitd override set --rule shop.pro-minute --entry user=u1 --exempt --for 24h --author ann --reason "load test"

  # Refuse a network
  ratelimitd override set --network 203.0.113.0/24 --block --for 1h --author ann --reason scraper`,
		RunE: calls(f, func(ctx context.Context, cmd *cobra.Command, c v1connect.AdminServiceClient, _ []string) error {
			if err := m.check(); err != nil {
				return err
			}
			o.Author, o.Reason = m.author, m.reason
			switch {
			case exempt && block, (exempt || block) && o.GetRequests() > 0, !exempt && !block && o.GetRequests() == 0:
				return usagef("--requests, --exempt and --block: want one of them")
			case exempt:
				o.Action = v1.Override_ACTION_EXEMPT
			case block:
				o.Action = v1.Override_ACTION_BLOCK
			default:
				o.Action = v1.Override_ACTION_LIMIT
			}
			if entry != "" {
				key, value, ok := strings.Cut(entry, "=")
				if !ok || o.GetKey() != "" {
					return usagef("--entry: %q: want KEY=VALUE, and no --entry-key", entry)
				}
				o.Key, o.Value = key, value
			}
			r := &v1.SetOverrideRequest{Override: &o}
			switch {
			case (ttl > 0) == (until != ""):
				return usagef("--for and --until: want one of them")
			case ttl > 0:
				r.Ttl = durationpb.New(ttl)
			default:
				at, err := time.Parse(time.RFC3339, until)
				if err != nil {
					return usagef("--until: %q: want a time such as 2026-01-31T18:00:00Z", until)
				}
				o.ExpireTime = timestamppb.New(at)
			}
			set, err := c.SetOverride(ctx, r)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), set.GetOverride().GetId())
			return nil
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Rule, "rule", "", "the `name` of a limit, DOMAIN.NAME, as check prints it under NAME: all its values")
	flags.StringVar(&o.Domain, "domain", "", "only in this `domain`")
	flags.StringVar(&entry, "entry", "", "only descriptors with this entry: `KEY=VALUE`")
	flags.StringVar(&o.Network, "network", "", "only descriptors with an address in this `CIDR`, or this address")
	flags.StringVar(&o.Key, "entry-key", "", "the `key` of the entry that --network looks at (default remote_address)")
	flags.Uint32Var(&o.Requests, "requests", 0, "give the limit this many `requests` per unit")
	flags.StringVar(&o.Unit, "unit", "", "second, minute, hour, day, week, month or year (default: the limit's own)")
	flags.Uint32Var(&o.Multiplier, "multiplier", 0, "of --unit (0: 1)")
	flags.Int64Var(&o.Burst, "burst", 0, "most hits at one instant (0: --requests, or the limit's own burst if it has one)")
	flags.BoolVar(&exempt, "exempt", false, "the limit does not apply")
	flags.BoolVar(&block, "block", false, "refuse the requests")
	flags.DurationVar(&ttl, "for", 0, "how long it is in force, 744h at most")
	flags.StringVar(&until, "until", "", "or when it ends: a `time` such as 2026-01-31T18:00:00Z")
	m.addTo(cmd)
	return cmd
}

func overrideList(f *adminFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use: "list", Short: "List the overrides that are in force", Args: cobra.NoArgs,
		Long: `List the overrides that are in force on the node that is asked. Those that have run out are in the
audit log only. If it cannot read what others may have set, it says so.`,
		Example: `  ratelimitd override list -o json`,
		RunE: calls(f, func(ctx context.Context, cmd *cobra.Command, c v1connect.AdminServiceClient, _ []string) error {
			r, err := c.ListOverrides(ctx, &v1.ListOverridesRequest{})
			if err != nil {
				return err
			}
			if r.GetProblem() != "" {
				writeLine(cmd.ErrOrStderr(), "there may be others, which this node has not heard of: %s", r.GetProblem())
			}
			return out.print(cmd.OutOrStdout(), message(r), func(w io.Writer) {
				lines := [][]string{{"ID", "TARGET", "DOES", "UNTIL", "AUTHOR", "REASON"}}
				for _, o := range r.GetOverrides() {
					lines = append(lines, []string{
						o.GetId(), o.GetTarget(), o.GetEffect(), stamp(o.GetExpireTime()), o.GetAuthor(), o.GetReason(),
					})
				}
				columns(w, lines)
			})
		}),
	}
	out.addTo(cmd)
	return cmd
}

func overrideRemove(f *adminFlags) *cobra.Command {
	var m motive
	cmd := &cobra.Command{
		Use: "rm ID", Short: "End an override before its time", Args: cobra.ExactArgs(1),
		Long:    `End an override before its time, on every node. Its ID is what set printed and list shows.`,
		Example: `  ratelimitd override rm o-ddbc2622024b --author ann --reason over`,
		RunE: calls(f, func(ctx context.Context, _ *cobra.Command, c v1connect.AdminServiceClient, args []string) error {
			if err := m.check(); err != nil {
				return err
			}
			_, err := c.RemoveOverride(ctx, &v1.RemoveOverrideRequest{Id: args[0], Author: m.author, Reason: m.reason})
			return err
		}),
	}
	m.addTo(cmd)
	return cmd
}
