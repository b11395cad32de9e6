package ledger

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A user with what docs/redis.md grants may do all that a ledger does.
func TestRedisACL(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	base := regexp.MustCompile(`(?m)^ACL SETUSER ratelimitd on >password (.+)$`).FindSubmatch(text)
	more := regexp.MustCompile("(?m)^\\| overrides, the audit log .+\\| `(.+)` \\|$").FindSubmatch(text)
	if base == nil || more == nil {
		t.Fatal("docs/redis.md grants nothing")
	}
	server := redistest.Start(t)
	args := []any{"acl", "setuser", "ratelimitd", "on", ">password"}
	for word := range strings.FieldsSeq(string(base[1]) + " " + string(more[1])) {
		args = append(args, word)
	}
	if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{
		Addr: server.Addr, Username: "ratelimitd", Password: "password", MaxRetries: -1, Protocol: 2, DisableIdentity: true,
	})
	defer c.Close()
	heard := make(chan struct{}, 100)
	l := newRedis(c, 3, Options{Node: "n", Heard: func() { heard <- struct{}{} }})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { l.Follow(ctx) })
	<-heard // the subscription is made
	for range 5 {
		if _, err := l.Commit(ctx, count); err != nil {
			t.Fatal(err)
		}
	}
	keep := func(State) (*Change, error) {
		return &Change{What: "keep", Blobs: map[string]string{Digest("x"): "x"}, Drop: []string{Digest("y")}}, nil
	}
	if _, err := l.Commit(ctx, keep); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Blob(ctx, Digest("x")); err != nil {
		t.Error(err)
	}
	if _, err := l.Verify(ctx); err != nil {
		t.Error(err)
	}
	if err := l.Report(ctx, Report{Build: "test"}); err != nil {
		t.Error(err)
	}
	if list, err := l.Reports(ctx); err != nil || len(list) != 1 || list[0].Node != "n" {
		t.Errorf("reports: got %+v, %v", list, err)
	}
	for range 12 { // twice for each of six changes: made here, and heard of
		<-heard
	}
}
