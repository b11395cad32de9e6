package ledger

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A Redis that refuses is told from one that is not there, whatever is asked of it. A node that cannot report is no reason
// to say that there are no nodes.
func TestRefusedOrUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client().Do(t.Context(), "acl", "setuser", "reader", "on", ">word", "~*", "+hgetall", "+ping").Err(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "reader", Password: "word", MaxRetries: -1, Protocol: 2, DisableIdentity: true})
	defer c.Close()
	l := NewRedis(c, Options{Node: "n"})
	ctx := t.Context()
	asked := func() map[string]error {
		_, commit := l.Commit(ctx, count)
		_, entries := l.Entries(ctx, 1, 1)
		_, blob := l.Blob(ctx, Digest("x"))
		report := l.Report(ctx, Report{})
		_, reports := l.Reports(ctx)
		return map[string]error{"commit": commit, "entries": entries, "blob": blob, "report": report, "reports": reports}
	}
	for what, err := range asked() {
		if _, ok := errors.AsType[*redisconn.RefusedError](err); !ok || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: got %v, want a refusal", what, err)
		}
	}
	server.Stop()
	for what, err := range asked() {
		if _, ok := errors.AsType[*redisconn.RefusedError](err); ok || !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: got %v, want %v", what, err, ErrUnavailable)
		}
	}
}
