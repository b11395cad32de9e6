package bench

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// counters are those of a server's /metrics that a Result tells of.
type counters struct {
	origins map[string]float64 // decisions, by where they were paid
	mallocs float64            // objects allocated
}

// readCounters asks a server's /metrics.
func readCounters(url string) (counters, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return counters{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return counters{}, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return parseCounters(resp.Body)
}

// parseCounters reads Prometheus's text format. It sums ratelimitd_decisions_total by its label origin.
func parseCounters(r io.Reader) (counters, error) {
	c := counters{origins: map[string]float64{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, value, ok := cutLast(lines.Text(), " ")
		if !ok || strings.HasPrefix(series, "#") {
			continue
		}
		labels, decisions := strings.CutPrefix(series, "ratelimitd_decisions_total{")
		if !decisions && series != "go_memstats_mallocs_total" {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return c, fmt.Errorf("metrics: %w", err)
		}
		if !decisions {
			c.mallocs = n
			continue
		}
		if _, origin, ok := strings.Cut(labels, `origin="`); ok {
			origin, _, _ = strings.Cut(origin, `"`)
			c.origins[origin] += n
		}
	}
	return c, lines.Err()
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// share returns the part of the decisions since before that were paid at origin, and how many there were.
func (c counters) share(before counters, origin string) (share, all float64) {
	for name, n := range c.origins {
		all += n - before.origins[name]
	}
	if all == 0 {
		return 0, 0
	}
	return (c.origins[origin] - before.origins[origin]) / all, all
}
