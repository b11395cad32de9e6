package config

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/ledger"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// reads counts the values that are read in Redis.
type reads struct{ n atomic.Int64 }

func (r *reads) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *reads) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *reads) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hget" {
			r.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

// A version whose files cannot be read is tried again and again, and complained of once. So is the next one.
func TestUnreadableIsSaidOnce(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	n := new(reads)
	c.AddHook(n)
	l := ledger.NewRedis(c, ledger.Options{})
	log := new(logBuffer)
	p := NewPublished(l, Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan Update, 10)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, func(u Update) { got <- u }) }()
	said := func() int { return strings.Count(log.String(), "published rules cannot be read") }
	<-got // there is none yet
	for v := range int64(2) {
		lost := func(st ledger.State) (*ledger.Change, error) {
			text := `{"version":` + strconv.FormatInt(v+1, 10) + `,"blob":"` + ledger.Digest("nowhere") + `"}`
			return &ledger.Change{What: "lose", Set: map[string]string{publishedField: text}}, nil
		}
		if _, err := l.Commit(ctx, lost); err != nil {
			t.Fatal(err)
		}
		want := n.n.Load() + 3
		eventually(t, "it is tried three times", func() bool {
			other := func(ledger.State) (*ledger.Change, error) { return &ledger.Change{What: "nothing"}, nil }
			if _, err := l.Commit(ctx, other); err != nil { // has it try now
				t.Fatal(err)
			}
			return n.n.Load() > want
		})
		if said() != int(v)+1 {
			t.Errorf("version %d: complained %d times in all, want %d:\n%s", v+1, said(), v+1, log)
		}
	}
	if _, err := p.Publish(ctx, rulesOf(1), by(2)); err != nil {
		t.Fatal(err)
	}
	if u := <-got; u.Version != "3" || u.Err != nil {
		t.Errorf("after them: got version %q, %v, want 3", u.Version, u.Err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
