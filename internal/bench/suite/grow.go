package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bench"
)

// curve is how the cost of a decision grows with something.
type curve struct {
	file  string // of its plot, without an extension
	what  string // the horizontal axis
	lines []line
	most  float64 // that the last point may be of the first; 0: no target
}

// line is one line of a curve.
type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 } // y: µs of CPU, a decision

// The names of lines.
const (
	growEmbedded = "server, embedded store"
	growOnRedis  = "server, Redis over TCP"
	growRedis    = "Redis"
)

// grow is `make bench-growth`.
func (s *suite) grow(ctx context.Context) error {
	began := time.Now()
	file, err := s.write("rules.yaml", rules)
	if err != nil {
		return err
	}
	for _, measure := range []func(context.Context, string) (curve, error){s.growDescriptors, s.growFlight, s.growRules, s.growBuckets} {
		c, err := measure(ctx, file)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.file, time.Since(began).Round(time.Second))
		s.children.stop()
		if s.plots != "" {
			if err := os.WriteFile(filepath.Join(s.plots, c.file+".svg"), []byte(plot(c)), 0o644); err != nil {
				return err
			}
		}
		if err := s.publish(c.file, growthTable(c)); err != nil {
			return err
		}
	}
	return s.publish("growth", fmt.Sprintf("Medians of %d. %s It took %v.", s.rounds, s.machine(), time.Since(began).Round(time.Second)))
}

// growthTable has a row a line, with the last point's multiple of the first, and its target if there is one.
func growthTable(c curve) string {
	var t table
	head := []string{"CPU of a decision, µs, at " + c.what}
	for _, p := range c.lines[0].points {
		head = append(head, humane(p.x))
	}
	head = append(head, "last ÷ first")
	if c.most > 0 {
		head = append(head, "at most", "")
	}
	t.head(head...)
	for _, l := range c.lines {
		cells := []string{l.name}
		for _, p := range l.points {
			cells = append(cells, number(p.y, 2))
		}
		growth := l.points[len(l.points)-1].y / l.points[0].y
		cells = append(cells, number(growth, 2))
		if c.most > 0 {
			cells = append(cells, number(c.most, 2), verdict(growth, c.most))
		}
		t.row(cells...)
	}
	return t.String()
}

// humane writes 10000 as 10k.
func humane(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', -1, 64) + "M"
	case v >= 1e3:
		return strconv.FormatFloat(v/1e3, 'f', -1, 64) + "k"
	default:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
}

// measured is one load, several times.
type measured struct {
	load  bench.Load
	x     float64
	lines []*line // of the server, and of its Redis if it has one
}

// measure measures loads in turn, so that a busy moment of the machine strikes all alike, and adds a point to each's lines.
func (s *suite) measure(ctx context.Context, all []measured) error {
	got := make([][]*bench.Result, len(all))
	for range s.rounds {
		for i, m := range all {
			r, err := bench.Run(ctx, m.load)
			if err != nil {
				return err
			}
			if r.Failed > 0 || m.load.Metrics != "" && r.Store < 0.999 {
				return fmt.Errorf("at %v: %d failed, %v paid at the store: this point is void", m.x, r.Failed, r.Store)
			}
			got[i] = append(got[i], r)
		}
	}
	for i, m := range all {
		for j, figure := range []func(*bench.Result) float64{serverCPU, redisCPU}[:len(m.lines)] {
			v, _ := results{"": {"": got[i]}}.median("", "", figure)
			m.lines[j].points = append(m.lines[j].points, point{m.x, v})
		}
	}
	return nil
}

// pair starts both of ours.
func (s *suite) pair(ctx context.Context, file string, more ...string) (memory, redis *server, err error) {
	if memory, err = s.startOurs(ctx, embedded, file, "", more...); err != nil {
		return nil, nil, err
	}
	redis, err = s.startOnRedis(ctx, overTCP, file, false)
	return memory, redis, err
}

func (s *suite) growDescriptors(ctx context.Context, file string) (curve, error) {
	memory, redis, err := s.pair(ctx, file)
	if err != nil {
		return curve{}, err
	}
	lines := []line{{name: growEmbedded}, {name: growOnRedis}, {name: growRedis}}
	var all []measured
	for _, n := range []int{1, 2, 4, 8} {
		var keys []string
		for i := range n {
			keys = append(keys, "key"+strconv.Itoa(i+1))
		}
		for _, v := range []*server{memory, redis} {
			l := s.load(v, s.message(keys...))
			if err := s.fill(ctx, l, ""); err != nil {
				return curve{}, err
			}
			m := measured{l, float64(n), []*line{&lines[0]}}
			if v == redis {
				m.lines = []*line{&lines[1], &lines[2]}
			}
			all = append(all, m)
		}
	}
	return curve{file: "growth-descriptors", what: "so many descriptors", lines: lines, most: 8}, s.measure(ctx, all)
}

func (s *suite) growFlight(ctx context.Context, file string) (curve, error) {
	memory, redis, err := s.pair(ctx, file)
	if err != nil {
		return curve{}, err
	}
	lines := []line{{name: growEmbedded}, {name: growOnRedis}, {name: growRedis}}
	var all []measured
	for _, n := range []int{1, 4, 16, 64, 128, 256, 512} {
		for _, v := range []*server{memory, redis} {
			l := s.load(v, s.message("key1"))
			if n == 1 {
				if err := s.fill(ctx, l, ""); err != nil {
					return curve{}, err
				}
			}
			l.Connections = min(n, 4)
			l.Streams = n / l.Connections
			m := measured{l, float64(n), []*line{&lines[0]}}
			if v == redis {
				m.lines = []*line{&lines[1], &lines[2]}
			}
			all = append(all, m)
		}
	}
	return curve{file: "growth-in-flight", what: "so many requests in flight", lines: lines}, s.measure(ctx, all)
}

// growRules has as many buckets at every point: keys that no rule names have the one of all others.
func (s *suite) growRules(ctx context.Context, _ string) (curve, error) {
	lines := []line{{name: growEmbedded}}
	var all []measured
	for _, n := range []int{10, 1000, 100_000} {
		dir := filepath.Join(s.children.dir, fmt.Sprintf("rules-%d", n))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return curve{}, err
		}
		for first := 0; first < n; first += 5000 {
			var b strings.Builder
			b.WriteString("domain: bench\ndescriptors:\n")
			if first == 0 {
				b.WriteString("  - {key: key1, rate_limit: {unit: year, requests_per_unit: 1000000}}\n")
			}
			for i := first; i < min(n, first+5000); i++ {
				fmt.Fprintf(&b, "  - {key: key1, value: \"%010d\", rate_limit: {unit: year, requests_per_unit: %d}}\n", i, 1_000_000+i)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d.yaml", first)), []byte(b.String()), 0o644); err != nil {
				return curve{}, err
			}
		}
		v, err := s.startOurs(ctx, fmt.Sprintf("%d rules", n), dir, "")
		if err != nil {
			return curve{}, err
		}
		l := s.load(v, s.message("key1"))
		l.Metrics = "" // several series a rule: too many to ask for each time
		if err := s.fill(ctx, l, ""); err != nil {
			return curve{}, err
		}
		all = append(all, measured{l, float64(n), []*line{&lines[0]}})
	}
	return curve{file: "growth-rules", what: "so many rules", lines: lines, most: 1.1}, s.measure(ctx, all)
}

func (s *suite) growBuckets(ctx context.Context, file string) (curve, error) {
	memory, redis, err := s.pair(ctx, file, "--max-buckets", strconv.Itoa(s.scale*5/4))
	if err != nil {
		return curve{}, err
	}
	lines := []line{{name: growEmbedded}, {name: growOnRedis}, {name: growRedis}}
	for _, n := range []int{1000, 10_000, 100_000, 1_000_000, 10_000_000} {
		if n > s.scale {
			break
		}
		var all []measured
		for _, v := range []*server{memory, redis} {
			l := s.load(v, s.message("key1"))
			l.Keys = n
			if err := s.fill(ctx, l, ""); err != nil {
				return curve{}, err
			}
			m := measured{l, float64(n), []*line{&lines[0]}}
			if v == redis {
				m.lines = []*line{&lines[1], &lines[2]}
			}
			all = append(all, m)
		}
		if err := s.measure(ctx, all); err != nil {
			return curve{}, err
		}
	}
	return curve{file: "growth-buckets", what: "so many live buckets", lines: slices.Clip(lines), most: 1.5}, nil
}
