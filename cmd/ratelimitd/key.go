package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
)

func keyCommand() *cobra.Command {
	var f rulesFlags
	var b bucketsFlags
	var a ask
	var out output
	cmd := &cobra.Command{
		Use:   "key --rules DIR|FILE [REQUEST]",
		Short: "Print the Redis keys of a request's buckets",
		Long: `Print the key in Redis of every bucket that a request would charge, so that it can be
looked at there. Keys are hashes under a secret, so it must be given by --key-secret-file
or be readable in Redis by --redis-url.

` + asksHelp,
		Example: `  export RATELIMITD_REDIS_URL=redis://127.0.0.1:6379
  ratelimitd key --rules examples/rules 'shop | [tier=pro, user=u1]'

  # How long until that bucket is full?
  redis-cli pttl "$(ratelimitd key --rules examples/rules -o json 'shop | [tier=free, user=u1]' | jq -r '.[0].key')"`,
		Args: cobra.MaximumNArgs(1),
		RunE: runs(func(cmd *cobra.Command, args []string) error {
			if b.redis.url == "" && b.redis.urlFile == "" && b.keySecretFile == "" {
				return usagef("want --key-secret-file, --redis-url or --redis-url-file: keys are hashes under a secret")
			}
			x, err := explanation(cmd, args, &f, &b, &a, false)
			if err != nil {
				return err
			}
			keys := []bucketKey{}
			for i, d := range x.Descriptors {
				for _, c := range d.Charges {
					keys = append(keys, bucketKey{Descriptor: i, Rule: x.Domain + "." + d.Rule, Limit: c.Limit, Key: c.Key})
				}
			}
			if len(keys) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "the request charges no bucket; see ratelimitd explain")
			}
			return out.print(cmd.OutOrStdout(), keys, func(w io.Writer) {
				lines := [][]string{{"DESCRIPTOR", "RULE", "LIMIT", "KEY"}}
				for _, k := range keys {
					lines = append(lines, []string{strconv.Itoa(k.Descriptor), k.Rule, dash(k.Limit), k.Key})
				}
				columns(w, lines)
			})
		}),
	}
	f.addTo(cmd)
	b.addTo(cmd)
	a.addTo(cmd)
	out.addTo(cmd)
	return cmd
}

// bucketKey is one line of what key prints.
type bucketKey struct {
	Descriptor int    `json:"descriptor"` // its index in the request
	Rule       string `json:"rule"`
	Limit      string `json:"limit,omitempty"`
	Key        string `json:"key"`
}
