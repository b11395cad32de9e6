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

// origins is how many decisions were paid where.
type origins map[string]float64

// readOrigins asks a server's /metrics.
func readOrigins(url string) (origins, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return parseOrigins(resp.Body)
}

// parseOrigins sums ratelimitd_decisions_total by its label origin, in Prometheus's text format.
func parseOrigins(r io.Reader) (origins, error) {
	o := origins{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, ok := strings.CutPrefix(lines.Text(), "ratelimitd_decisions_total{")
		if !ok {
			continue
		}
		end := strings.LastIndexByte(labels, ' ')
		_, origin, ok := strings.Cut(labels, `origin="`)
		if end < 0 || !ok {
			continue
		}
		origin, _, _ = strings.Cut(origin, `"`)
		n, err := strconv.ParseFloat(labels[end+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		o[origin] += n
	}
	return o, lines.Err()
}

// share returns the part of the decisions since before that were paid at origin, and how many there were.
func (o origins) share(before origins, origin string) (share, all float64) {
	for name, n := range o {
		all += n - before[name]
	}
	if all == 0 {
		return 0, 0
	}
	return (o[origin] - before[origin]) / all, all
}
