package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

func explainCommand() *cobra.Command {
	var f rulesFlags
	var b bucketsFlags
	var a ask
	var out output
	cmd := &cobra.Command{
		Use:   "explain --rules DIR|FILE [REQUEST]",
		Short: "Say which limits a request meets, and why",
		Long: `Say how a request would be decided under the rules: how each entry was matched, which
rule was reached and where it stands, which limits apply, and what the answer would be.
Nothing is spent.

Without --redis-url every bucket is full, as for a request nobody made before, and no
override is known that operators set. With it, the buckets of a running deployment are
looked at, and its overrides are in force. Those of a node that keeps its own in
--state-dir only its admin port tells, by the call Explain: docs/admin.md.

` + asksHelp,
		Example: `  ratelimitd explain --rules examples/rules 'shop | [tier=pro, user=u1]'

  # Why is this user denied now?
  RATELIMITD_REDIS_URL=redis://127.0.0.1:6379 ratelimitd explain --rules examples/rules 'shop | [tier=pro, user=u1]'`,
		Args: cobra.MaximumNArgs(1),
		RunE: runs(func(cmd *cobra.Command, args []string) error {
			x, err := explanation(cmd, args, &f, &b, &a, true)
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), x, func(w io.Writer) { explain(w, x) })
		}),
	}
	f.addTo(cmd)
	b.addTo(cmd)
	a.addTo(cmd)
	out.addTo(cmd)
	return cmd
}

// explanation explains the request of args and flags, as operators' overrides have it or without them. Keys that are
// nobody's are left out.
func explanation(cmd *cobra.Command, args []string, f *rulesFlags, b *bucketsFlags, a *ask, overrides bool) (_ *engine.Explanation, err error) {
	req, err := a.request(args)
	if err != nil {
		return nil, err
	}
	snapshot, err := f.load(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	x, err := b.explainer(cmd, snapshot)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	if overrides {
		if err := b.learnOverrides(cmd.Context(), x, cmd.ErrOrStderr()); err != nil {
			return nil, err
		}
	}
	e, err := x.Explain(cmd.Context(), req)
	if err != nil {
		return nil, usagef("request: %w", err)
	}
	for i := range e.Descriptors {
		for j := range e.Descriptors[i].Charges {
			c := &e.Descriptors[i].Charges[j]
			if x.live != nil && c.Unpaid {
				return nil, unpaid(x.live.err)
			}
			if !x.keyed {
				c.Key = ""
			}
		}
	}
	return e, nil
}

// explain writes an explanation for people.
func explain(w io.Writer, x *engine.Explanation) {
	switch {
	case x.TooMany:
		writeLine(w, "OVER: more limits than one request may charge")
	case x.Asked == nil:
	case x.Asked.Over:
		writeLine(w, "OVER%s%s", deciding(", by ", x.Asked), again(x.Asked.RetryAfter))
	default:
		writeLine(w, "OK%s", deciding(", nearest its edge ", x.Asked))
	}
	if !x.Known {
		writeLine(w, "no rules name the domain %q", x.Domain)
	}
	for i := range x.Descriptors {
		explainDescriptor(w, x.Domain, &x.Descriptors[i])
	}
}

// deciding names the limit that decides, if any does.
func deciding(how string, o *engine.Outcome) string {
	if o.Descriptor == nil {
		return ""
	}
	name := ""
	if o.Limit != "" {
		name = fmt.Sprintf(" (limit %q)", o.Limit)
	}
	return fmt.Sprintf("%s%s%s, remaining %d", how, o.Rule, name, o.Remaining)
}

// again says when the request would pass.
func again(seconds float64) string {
	if seconds < 0 {
		return ", no wait helps"
	}
	return ", passes in " + duration(seconds)
}

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond).String()
}

func explainDescriptor(w io.Writer, domain string, d *engine.ExplainedDescriptor) {
	hits := strconv.FormatUint(d.Hits, 10) + " hits"
	switch {
	case d.Refund:
		hits += " given back"
	case d.Hits == 0:
		hits = "a look"
	case d.Hits == 1:
		hits = "1 hit"
	}
	fmt.Fprintln(w)
	writeLine(w, "[%s] %s", strings.Join(d.Entries, ", "), hits)
	if d.Matched != nil {
		writeLine(w, "  matched with what lookups derive: [%s]", strings.Join(d.Matched, ", "))
	}
	for _, l := range d.Levels {
		if l.Node == "" {
			writeLine(w, "  %s: no node", l.Entry)
			continue
		}
		writeLine(w, "  %s: %s %s (%s)", l.Entry, l.Match, l.Node, l.At)
	}
	writeLine(w, "  %s", d.Why)
	if b := d.Blocked; b != nil {
		reason := ""
		if b.Reason != "" {
			reason = ": " + b.Reason
		}
		writeLine(w, "  blocked: %s %s at %s%s", b.Key, b.Match, b.At, reason)
	}
	if d.Rule != "" {
		writeLine(w, "  rule %s.%s at %s%s", domain, d.Rule, d.At, modes(d))
	}
	for _, o := range d.Exceptions {
		writeLine(w, "  override %s", o)
	}
	if d.Override != "" {
		writeLine(w, "  the request's limit: %s", d.Override)
	}
	for _, r := range d.Replaced {
		writeLine(w, "  replaced: %s", r)
	}
	for i := range d.Charges {
		explainCharge(w, &d.Charges[i])
	}
}

func modes(d *engine.ExplainedDescriptor) string {
	modes := ""
	if d.Shadow {
		modes += ", shadow: never refuses"
	}
	if d.Quota {
		modes += ", quota"
		if d.Group != "" {
			modes += " of group " + d.Group
		}
	}
	return modes
}

func explainCharge(w io.Writer, c *engine.ExplainedCharge) {
	multiplier := ""
	if c.Multiplier > 1 {
		multiplier = strconv.FormatUint(uint64(c.Multiplier), 10)
	}
	name, burst, over := "", "", ""
	if c.Limit != "" {
		name = fmt.Sprintf(" %q", c.Limit)
	}
	if c.Burst > 0 && c.Burst != int64(c.Requests) {
		burst = fmt.Sprintf(", burst %d", c.Burst)
	}
	if c.AskedOver {
		over = ", OVER" + again(c.RetryAfter)
	}
	writeLine(w, "  limit%s %d/%s%s %s%s: remaining %d%s", name, c.Requests, multiplier, c.Unit, c.Algorithm, burst, c.Remaining, over)
	if c.Key != "" {
		writeLine(w, "    key %s", c.Key)
	}
}
