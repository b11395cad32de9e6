package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bench"
)

// footprint is what buckets take.
type footprint struct {
	where    string
	buckets  int
	each     float64 // bytes, of a bucket
	resident int64   // bytes, of the process that holds them
}

// memoryBuckets is how many buckets are weighed.
const memoryBuckets = 1_000_000

// footprints fills an embedded store and a Redis, and weighs them.
func (s *suite) footprints(ctx context.Context, file string) ([]footprint, error) {
	fmt.Fprintln(os.Stderr, "memory of a million buckets")
	var all []footprint
	for _, name := range []string{embedded, overTCP} {
		var v *server
		var err error
		if name == embedded {
			v, err = s.startOurs(ctx, "embedded store, weighed", file, "")
		} else {
			v, err = s.startOnRedis(ctx, "Redis, weighed", file, false)
		}
		if err != nil {
			return nil, err
		}
		before, err := v.bytesHeld(ctx)
		if err != nil {
			return nil, err
		}
		l := s.load(v, s.message("key1"))
		l.Keys = memoryBuckets
		if err := s.fill(ctx, l, saturated); err != nil {
			return nil, err
		}
		after, err := v.bytesHeld(ctx)
		if err != nil {
			return nil, err
		}
		holder := v.pid
		if v.redis != 0 {
			holder = v.redis
		}
		resident, err := bench.ResidentBytes(holder)
		if err != nil {
			return nil, err
		}
		all = append(all, footprint{name, memoryBuckets, (after - before) / memoryBuckets, resident})
		s.children.endPID(v.pid)
		if v.redis != 0 {
			s.children.endPID(v.redis)
		}
	}
	return all, nil
}

// bytesHeld returns what the server's buckets lie in: Redis's used_memory, else the heap after a collection.
func (v *server) bytesHeld(ctx context.Context) (float64, error) {
	if v.redis != 0 {
		host, port, _ := net.SplitHostPort(v.socket)
		out, err := exec.CommandContext(ctx, "redis-cli", "-h", host, "-p", port, "info", "memory").Output()
		if err != nil {
			return 0, fmt.Errorf("redis-cli: %w", err)
		}
		return field(strings.NewReader(string(out)), "used_memory:")
	}
	if _, err := get(ctx, strings.TrimSuffix(v.metrics, "/metrics")+"/debug/pprof/heap?gc=1"); err != nil {
		return 0, err
	}
	text, err := get(ctx, v.metrics)
	if err != nil {
		return 0, err
	}
	return field(strings.NewReader(text), "go_memstats_heap_alloc_bytes ")
}

// field returns the number behind a line's beginning.
func field(r io.Reader, name string) (float64, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), name); ok {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return 0, fmt.Errorf("no line %q", name)
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(data), err
}
