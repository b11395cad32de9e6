package main

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// 64 clients call 5,000 times each on a key of 500 an hour: exactly 500 calls are allowed, in memory and in Redis, by one
// process and by two.
func TestExactlyTheLimit(t *testing.T) {
	const clients = 64
	calls := 5000
	if raceEnabled || testing.Short() {
		calls = 100 // 6,400 in all are still a dozen times the limit
	}
	tests := []struct {
		name      string
		redis     bool
		processes int
	}{
		{"memory", false, 1},
		{"redis", true, 1},
		{"redis, two processes", true, 2},
	}
	for _, test := range tests { // one after the other: each takes the whole machine
		t.Run(test.name, func(t *testing.T) {
			var flags []string
			if test.redis {
				flags = []string{"--redis-url", redistest.Start(t).URL(), "--redis-timeout", "2s"}
			}
			var servers []*server
			for range test.processes {
				s := startServer(t, oneRule, flags...)
				if test.redis {
					s.await(t, "key secret read from Redis")
				}
				servers = append(servers, s)
			}
			began := time.Now()
			var allowed, denied atomic.Int64
			var all sync.WaitGroup
			for i := range clients {
				client := rlsv3.NewRateLimitServiceClient(dialServer(t, servers[i%len(servers)].GRPC))
				all.Go(func() {
					req := &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
						Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "api", Value: "hot"}},
					}}}
					for range calls {
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						resp, err := client.ShouldRateLimit(ctx, req)
						cancel()
						switch {
						case err != nil:
							t.Errorf("client %d: %v", i, err)
							return
						case resp.OverallCode == rlsv3.RateLimitResponse_OK:
							allowed.Add(1)
						default:
							denied.Add(1)
						}
					}
				})
			}
			all.Wait()
			took := time.Since(began)
			windows := time.Now().Unix()/3600 - began.Unix()/3600 + 1 // a run that passes the full hour meets a second one
			if got, want := allowed.Load(), 500*windows; got != want {
				t.Errorf("got %d calls allowed, want %d", got, want)
			}
			if got, want := allowed.Load()+denied.Load(), int64(clients*calls); got != want {
				t.Errorf("got %d answers, want %d", got, want)
			}
			t.Logf("%d calls in %v, %.0f a second", clients*calls, took.Round(time.Millisecond), float64(clients*calls)/took.Seconds())
		})
	}
}
