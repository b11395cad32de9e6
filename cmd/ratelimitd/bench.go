package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/bench"
	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// keyPlace is what stands for the key in a request of bench.
const keyPlace = "{key}"

func benchCommand() *cobra.Command {
	var a ask
	var out output
	var l bench.Load
	var spread string
	cmd := &cobra.Command{
		Use:   "bench [REQUEST]",
		Short: "Load a running server, and measure it",
		Long: `Load a running server over gRPC and print how many decisions it made a second, how long
they took, and what they cost. The hits are spent.

Without --rate, a closed loop keeps --connections × --streams requests in flight: the most
the server can do. With it, requests are sent at random moments (Poisson) at that rate,
whether or not answers have come, and each is measured from the moment it was due, so that
a server that stalls is charged for everyone who would have come meanwhile.

` + keyPlace + ` in a value of the request becomes one of --keys numbers of ten digits.

` + asksHelp,
		Example: `  ratelimitd bench 'shop | [tier=free, user=` + keyPlace + `]'

  # Latency at 3,000 requests a second, on one key of a thousand most of the time
  ratelimitd bench --rate 3000 --keys 1000 --spread zipf 'shop | [tier=free, user=` + keyPlace + `]'

  # What a decision costs the server and Redis on this machine, and whether Redis decided it
  ratelimitd bench --pid "$(pgrep -ox ratelimitd)" --redis-pid "$(pgrep -ox redis-server)" --metrics http://127.0.0.1:8082/metrics 'shop | [tier=free, user=` + keyPlace + `]'`,
		Args: cobra.MaximumNArgs(1),
		RunE: runs(func(cmd *cobra.Command, args []string) error {
			req, err := a.request(args)
			if err != nil {
				return err
			}
			if l.Message, err = benchMessage(req); err != nil {
				return usagef("request: %w", err)
			}
			l.Spread = bench.Spread(spread)
			if !cmd.Flags().Changed("seed") {
				l.Seed = rand.Uint64()
			}
			if l.Count > 0 && !cmd.Flags().Changed("duration") {
				l.Duration = 0
			}
			return runBench(cmd, l, &out)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&l.Addr, "addr", "127.0.0.1:8081", "`address` of the server's gRPC port")
	flags.IntVar(&l.Connections, "connections", 4, "connections to the server")
	flags.IntVar(&l.Streams, "streams", 32, "requests in flight on a connection; with --rate, the most")
	flags.Float64Var(&l.Rate, "rate", 0, "requests a second, at random moments (0: as fast as answers come)")
	flags.DurationVar(&l.Duration, "duration", 5*time.Second, "how long to measure")
	flags.Int64Var(&l.Count, "count", 0, "how many requests to measure, whatever time they take unless --duration says (0: any)")
	flags.DurationVar(&l.Warm, "warm", time.Second, "how long to send before that")
	flags.IntVar(&l.Keys, "keys", 100_000, "how many different keys there are")
	choiceVar(flags, &spread, "spread", "how keys are drawn: all alike, a few most of the time, one only, or one after another", bench.Spreads...)
	flags.Uint64Var(&l.Seed, "seed", 0, "seed of keys and moments; a random one is printed")
	flags.IntVar(&l.PID, "pid", 0, "process `id` of the server, to print what CPU time a decision takes")
	flags.IntVar(&l.RedisPID, "redis-pid", 0, "process `id` of Redis, likewise")
	flags.StringVar(&l.Metrics, "metrics", "", "`URL` of the server's /metrics, to print where decisions were paid")
	a.addTo(cmd)
	out.addTo(cmd)
	return cmd
}

// benchMessage encodes a request with the key's places marked.
func benchMessage(req *engine.Request) (bench.Message, error) {
	for i := range req.Descriptors {
		for j := range req.Descriptors[i].Entries {
			e := &req.Descriptors[i].Entries[j]
			e.Value = strings.ReplaceAll(e.Value, keyPlace, bench.Mark)
		}
	}
	return bench.NewMessage(appendRequest(nil, req))
}

func runBench(cmd *cobra.Command, l bench.Load, out *output) error {
	if err := l.Validate(); err != nil {
		return usagef("%w", err)
	}
	res, err := bench.Run(cmd.Context(), l)
	if op := (*net.OpError)(nil); res == nil && (errors.As(err, &op) && op.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)) {
		return &exitError{exitUnreachable, err}
	}
	if res != nil {
		if printErr := out.print(cmd.OutOrStdout(), res, func(w io.Writer) { benchTable(w, l, res) }); printErr != nil {
			return printErr
		}
	}
	if err == nil && res.Failed > 0 {
		return fmt.Errorf("%d of %d requests were answered without a decision", res.Failed, res.Answers)
	}
	return err
}

func benchTable(w io.Writer, l bench.Load, r *bench.Result) {
	lines := [][]string{
		{"decisions a second", decimal(r.Rate, 0)},
		{"admitted", strconv.FormatInt(r.OK, 10)},
		{"over limit", strconv.FormatInt(r.Over, 10)},
		{"failed", strconv.FormatInt(r.Failed, 10)},
	}
	if l.Rate > 0 {
		lines = append(lines, []string{"not sent", strconv.FormatInt(r.Dropped, 10)})
	}
	for _, q := range []struct {
		name string
		v    float64
	}{{"p50", r.Lat.P50}, {"p90", r.Lat.P90}, {"p99", r.Lat.P99}, {"p99.9", r.Lat.P999}, {"longest", r.Lat.Max}} {
		lines = append(lines, []string{q.name, decimal(q.v/1e3, 3) + " ms"})
	}
	if l.PID != 0 {
		lines = append(lines, []string{"CPU of the server, a decision", decimal(r.ServerCPU, 2) + " µs"})
	}
	if l.RedisPID != 0 {
		lines = append(lines, []string{"CPU of Redis, a decision", decimal(r.RedisCPU, 2) + " µs"})
	}
	if r.ClientCPU > 0 {
		lines = append(lines, []string{"CPU of this client, a decision", decimal(r.ClientCPU, 2) + " µs"})
	}
	if l.Metrics != "" {
		lines = append(lines, []string{"paid at the store", decimal(r.Store*100, 2) + " %"})
		lines = append(lines, []string{"denied from memory", decimal(r.Denied*100, 2) + " %"})
	}
	columns(w, append(lines, []string{"seed", strconv.FormatUint(r.Seed, 10)}))
}
