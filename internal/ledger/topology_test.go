package ledger_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/ledger"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A ledger in a Cluster, and behind Sentinels, is as good as one on a single server.
func TestTopologies(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"cluster":   func(t *testing.T) string { return redistest.StartCluster(t, redistest.Setup{}, 3, 0, false).URL() },
		"sentinels": func(t *testing.T) string { return redistest.StartSentinels(t, redistest.Setup{}, 0, 1, "").URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := redisconn.New(redisconn.Options{URL: url(t)})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			c := conn.Client()
			defer c.Close()
			heard := make(chan struct{}, 100)
			l := ledger.NewRedis(c, ledger.Options{Node: "n", Heard: func() { heard <- struct{}{} }})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			wg.Go(func() { l.Follow(ctx) })
			<-heard // the subscription is made
			for range 3 {
				if _, err := l.Commit(ctx, func(ledger.State) (*ledger.Change, error) {
					return &ledger.Change{
						Who: "ann", What: "set", Set: map[string]string{"x": "1"}, Blobs: map[string]string{ledger.Digest("b"): "b"},
					}, nil
				}); err != nil {
					t.Fatal(err)
				}
				<-heard // made here
				<-heard // and heard of
			}
			if v, err := l.Verify(ctx); err != nil || v.Entries != 3 {
				t.Errorf("verify: got %+v, %v", v, err)
			}
			if _, err := l.Blob(ctx, ledger.Digest("b")); err != nil {
				t.Error(err)
			}
		})
	}
}
