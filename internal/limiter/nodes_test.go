package limiter

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestNodes(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	n := NewNodes(0, reg, slog.New(slog.NewTextHandler(&log, nil)))
	want := func(what string, count int64, known float64) {
		t.Helper()
		if got := n.Count(); got != count {
			t.Errorf("%s: got %d nodes, want %d", what, got, count)
		}
		if got := metric(t, reg, "ratelimitd_limiter_nodes_known"); got != known {
			t.Errorf("%s: got known %v, want %v", what, got, known)
		}
		if got := metric(t, reg, "ratelimitd_limiter_nodes"); got != float64(count) {
			t.Errorf("%s: got a gauge of %v, want %d", what, got, count)
		}
	}
	want("never learnt", 1, 0)
	want("never learnt, again", 1, 0)
	if got := strings.Count(log.String(), "level=WARN"); got != 1 {
		t.Errorf("got %d warnings, want 1:\n%s", got, log.String())
	}
	n.Learn(3)
	want("learnt", 3, 1)
	n.Learn(0)
	want("nobody answers: the last one is kept", 3, 1)
	n.Learn(2)
	want("one left", 2, 1)

	static := NewNodes(4, nil, nil)
	static.Learn(9)
	if got := static.Count(); got != 4 {
		t.Errorf("a static number: got %d, want 4", got)
	}
}
