package ledger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "reader", Password: "word", MaxRetries: -1, DialerRetries: 1, Protocol: 2, DisableIdentity: true})
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

// A change that Redis refuses in the middle, for want of one right or for a key of another type, leaves nothing.
func TestRefusedChangeLeavesNothing(t *testing.T) {
	t.Parallel()
	change := func(State) (*Change, error) {
		return &Change{
			What: "all that a change can do", Set: map[string]string{"n": "7", "gone": ""},
			Blobs: map[string]string{Digest("x"): "x"}, Drop: []string{Digest("y")},
		}, nil
	}
	spoils := map[string][]any{}
	for _, right := range []string{"hset", "hdel", "rpush", "ltrim"} {
		spoils["no right to "+right] = []any{"acl", "setuser", "user", "-" + right}
	}
	for _, key := range []string{plain.state, plain.log, plain.blobs} {
		others := []any{"acl", "setuser", "user", "resetkeys", "%R~*"}
		for _, other := range []string{plain.state, plain.log, plain.blobs} {
			if other != key {
				others = append(others, "~"+other)
			}
		}
		spoils[key+" may only be read"] = others
		spoils[key+" is of another type"] = []any{"set", key, "text"}
	}
	spoils["memory is full"] = []any{"config", "set", "maxmemory", "1"}
	for name, spoil := range spoils {
		for _, before := range []int{0, 2} {
			if before == 0 && name == "memory is full" {
				continue // what little the first entry takes
			}
			t.Run(fmt.Sprintf("%s, after %d changes", name, before), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				ctx, admin := t.Context(), server.Client()
				if err := admin.Do(ctx, "acl", "setuser", "user", "on", ">word", "~*", "&*", "+@all").Err(); err != nil {
					t.Fatal(err)
				}
				c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "user", Password: "word", MaxRetries: -1, Protocol: 2, DisableIdentity: true})
				defer c.Close()
				l := NewRedis(c, Options{})
				for range before {
					if _, err := l.Commit(ctx, count); err != nil {
						t.Fatal(err)
					}
				}
				if err := admin.Do(ctx, spoil...).Err(); err != nil {
					t.Fatal(err)
				}
				was := dump(t, admin)
				if _, err := l.Commit(ctx, change); redisconn.Refusal(err) == nil {
					t.Errorf("got %v, want a refusal", err)
				}
				if diff := cmp.Diff(was, dump(t, admin)); diff != "" {
					t.Errorf("what is kept (-before +after):\n%s", diff)
				}
			})
		}
	}
}

// dump returns all that c holds, by key.
func dump(t *testing.T, c *redis.Client) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, key := range c.Keys(t.Context(), "*").Val() {
		switch kind := c.Type(t.Context(), key).Val(); kind {
		case "hash":
			out[key] = fmt.Sprint(c.HGetAll(t.Context(), key).Val())
		case "list":
			out[key] = fmt.Sprint(c.LRange(t.Context(), key, 0, -1).Val())
		default:
			out[key] = kind
		}
	}
	return out
}
