package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bench"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// Redis alone is asked as redis-benchmark -P 16 -c 32 asks, which itself cannot send what holds bytes of zero.
const (
	aloneConnections = 32
	alonePipeline    = 16
	aloneKeys        = 100_000
)

// alone is a Redis that nobody but us asks: our script, a charge a call, sixteen calls in a pipeline.
type alone struct {
	suite    *suite
	pid      int
	addr     string
	commands [aloneKeys][]byte
}

// startAlone starts it, and fills it.
func (s *suite) startAlone(ctx context.Context) (*alone, error) {
	a := &alone{suite: s}
	limit, err := bucket.New(bucket.Config{Hits: 1_000_000, Unit: bucket.Year})
	if err != nil {
		return nil, err
	}
	keyer, err := store.NewKeyer([]byte("sixteen or more bytes"))
	if err != nil {
		return nil, err
	}
	var body string
	for i := range a.commands {
		charge := store.Charge{Key: keyer.Key("alone", []string{fmt.Sprint(i)}), Limit: limit, Hits: 1}
		var args []string
		if args, body, err = redisstore.Command([]store.Charge{charge}); err != nil {
			return nil, err
		}
		a.commands[i] = fmt.Appendf(nil, "*%d\r\n", len(args))
		for _, arg := range args {
			a.commands[i] = fmt.Appendf(a.commands[i], "$%d\r\n%s\r\n", len(arg), arg)
		}
	}
	if a.pid, a.addr, err = s.startRedis(ctx, aloneName, false); err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(a.addr)
	load := exec.CommandContext(ctx, "redis-cli", "-h", host, "-p", port, "-x", "script", "load")
	load.Stdin = bytes.NewReader([]byte(body))
	if out, err := load.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("load the script: %w: %s", err, out)
	}
	_, err = a.run(ctx) // so that most keys are there
	return a, err
}

// run measures it once.
func (a *alone) run(ctx context.Context) (*bench.Result, error) {
	before, err := bench.CPUTime(a.pid)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var asking sync.WaitGroup
	answers := make([]int64, aloneConnections)
	failed := make([]error, aloneConnections)
	for i := range aloneConnections {
		asking.Go(func() {
			answers[i], failed[i] = a.ask(ctx, began.Add(a.suite.slice), rand.New(rand.NewPCG(a.suite.seed, uint64(i))))
		})
	}
	asking.Wait()
	r := &bench.Result{Seconds: time.Since(began).Seconds()}
	after, err := bench.CPUTime(a.pid)
	if err := errors.Join(append(failed, err)...); err != nil {
		return nil, fmt.Errorf("%s: %w", aloneName, err)
	}
	for _, n := range answers {
		r.Answers += n
	}
	r.OK = r.Answers
	r.Rate = float64(r.Answers) / r.Seconds
	r.RedisCPU = float64(after-before) / 1e3 / float64(r.Answers)
	return r, nil
}

// ask asks over one connection until a moment, and returns how many answers came.
func (a *alone) ask(ctx context.Context, until time.Time, draw *rand.Rand) (answers int64, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", a.addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	var out []byte
	for time.Now().Before(until) {
		out = out[:0]
		for range alonePipeline {
			out = append(out, a.commands[draw.IntN(aloneKeys)]...)
		}
		if _, err := conn.Write(out); err != nil {
			return answers, err
		}
		for range alonePipeline {
			if err := readString(in); err != nil {
				return answers, err
			}
			answers++
		}
	}
	return answers, nil
}

// readString reads a reply, a string, and skips what it says.
func readString(in *bufio.Reader) error {
	head, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if head[0] != '$' {
		return fmt.Errorf("got %q, want a string", head)
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(head[1:])))
	if err != nil {
		return fmt.Errorf("length of a string: %w", err)
	}
	_, err = in.Discard(n + len("\r\n"))
	return err
}
