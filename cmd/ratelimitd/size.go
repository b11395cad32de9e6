package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/capacity"
)

func sizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "size",
		Short: "Reckon how many nodes, what limit, how large a bucket",
		Long: `Do the arithmetic of docs/capacity.md: how many nodes and Redis shards carry a load,
what limit a service can afford, and what a bucket does to a stream of requests.`,
		Example: `  ratelimitd size fleet --decisions 250000 --server-cpu 20 --redis-cpu 10 --identities 2000000
  ratelimitd size limit --instances 20 --rate 500 --utilisation 0.7 --tenants 200
  ratelimitd size bucket --burst 5 --rate 10 --requests 8`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(sizeFleetCommand(), sizeLimitCommand(), sizeBucketCommand())
	return cmd
}

func sizeFleetCommand() *cobra.Command {
	var l capacity.Load
	var perDay, lifetime float64
	var out output
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Nodes, shards and memory for a load",
		Long: `How many nodes of ratelimitd and shards of Redis carry a load, and what memory their
buckets take. What a decision costs, measure on your machines: ratelimitd bench prints it.`,
		Example: `  ratelimitd size fleet --decisions 250000 --server-cpu 20 --redis-cpu 10 --identities 2000000

  # 50 million identities a day, each with buckets that live an hour
  ratelimitd size fleet --decisions 1000000 --per-day 50000000 --lifetime 3600`,
		Args: cobra.NoArgs,
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			if perDay > 0 {
				if cmd.Flags().Changed("identities") {
					return usagef("want --identities or --per-day, not both")
				}
				l.Identities = capacity.LiveBuckets(perDay, lifetime)
			}
			f, err := l.Fleet()
			if err != nil {
				return usagef("%w", err)
			}
			return out.print(cmd.OutOrStdout(), f, func(w io.Writer) {
				columns(w, [][]string{
					{"processors for decisions", decimal(f.Cores, 1)},
					{"nodes", fmt.Sprintf("%d, %d of them spare", f.Nodes, l.Spare)},
					{"processors for Redis", decimal(f.RedisCores, 1)},
					{"shards", strconv.Itoa(f.Shards)},
					{"buckets", decimal(f.Buckets, 0)},
					{"memory of the buckets", decimal(f.Bytes/1e9, 2) + " GB"},
					{"of a shard", decimal(f.ShardBytes/1e9, 2) + " GB"},
				})
			})
		}),
	}
	flags := cmd.Flags()
	flags.Float64Var(&l.Decisions, "decisions", 0, "decisions a second at the peak")
	flags.Float64Var(&l.ServerCPU, "server-cpu", 20, "what a decision takes of ratelimitd's processors, in `µs`")
	flags.Float64Var(&l.RedisCPU, "redis-cpu", 10, "and of Redis's, in `µs`")
	flags.Float64Var(&l.AtStore, "at-store", 1, "`share` of the decisions that ask Redis")
	flags.Float64Var(&l.Utilisation, "utilisation", 0.6, "`share` of a processor that may be busy")
	flags.IntVar(&l.Cores, "cores", 4, "processors of a node")
	flags.IntVar(&l.Spare, "spare", 1, "nodes that may be lost")
	flags.Float64Var(&l.Identities, "identities", 1_000_000, "how many have a bucket at one time")
	flags.Float64Var(&perDay, "per-day", 0, "how many come a day, in place of --identities")
	flags.Float64Var(&lifetime, "lifetime", 86400, "`seconds` that a bucket of --per-day lives")
	flags.Float64Var(&l.Limits, "limits", 1, "buckets an identity has")
	flags.Float64Var(&l.BucketBytes, "bucket-bytes", 165, "memory of a bucket, in `bytes`")
	out.addTo(cmd)
	return cmd
}

func sizeLimitCommand() *cobra.Command {
	var s capacity.Service
	var out output
	cmd := &cobra.Command{
		Use:     "limit",
		Short:   "The limit that a service can afford to grant each tenant",
		Long:    `Instances × what each can serve × the share of it that may be handed out ÷ tenants.`,
		Example: `  ratelimitd size limit --instances 20 --rate 500 --utilisation 0.7 --tenants 200`,
		Args:    cobra.NoArgs,
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			limit, err := s.Limit()
			if err != nil {
				return usagef("%w", err)
			}
			v := struct {
				PerSecond float64 `json:"requests_per_second"`
				PerMinute float64 `json:"requests_per_minute"`
			}{limit, limit * 60}
			return out.print(cmd.OutOrStdout(), v, func(w io.Writer) {
				columns(w, [][]string{{"a tenant, a second", decimal(v.PerSecond, 2)}, {"a minute", decimal(v.PerMinute, 1)}})
			})
		}),
	}
	flags := cmd.Flags()
	flags.Float64Var(&s.Instances, "instances", 1, "instances of the service")
	flags.Float64Var(&s.Rate, "rate", 0, "requests a second that each can serve")
	flags.Float64Var(&s.Utilisation, "utilisation", 0.7, "`share` of it that limits may hand out")
	flags.Float64Var(&s.Tenants, "tenants", 1, "who share it")
	out.addTo(cmd)
	return cmd
}

func sizeBucketCommand() *cobra.Command {
	var b capacity.Bucket
	var out output
	cmd := &cobra.Command{
		Use:   "bucket",
		Short: "What a bucket does to a stream of requests",
		Long: `What a token bucket of --burst hits, of which --rate come back a second, does to --requests
a second: how many pass, how many are refused, and how long a burst lasts. Refusals
are reckoned for arrivals at random moments (Poisson), and for evenly spaced ones.`,
		Example: `  ratelimitd size bucket --burst 5 --rate 10 --requests 8`,
		Args:    cobra.NoArgs,
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			v, err := b.Behaviour()
			if err != nil {
				return usagef("%w", err)
			}
			return out.print(cmd.OutOrStdout(), v, func(w io.Writer) {
				drain := "never, at this rate"
				if v.Drain > 0 {
					drain = decimal(v.Drain, 1) + " s"
				}
				columns(w, [][]string{
					{"pass", decimal(v.Sustained, 2) + " a second"},
					{"refused", decimal(v.Rejected*100, 3) + " %"},
					{"refused if evenly spaced", decimal(v.Steady*100, 3) + " %"},
					{"a full bucket is empty after", drain},
					{"an empty one is full after", decimal(v.Refill, 1) + " s"},
				})
			})
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&b.Burst, "burst", 0, "hits it holds when full")
	flags.Float64Var(&b.Rate, "rate", 0, "hits that come back a second")
	flags.Float64Var(&b.Requests, "requests", 0, "requests a second, a hit each")
	out.addTo(cmd)
	return cmd
}

func decimal(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }
