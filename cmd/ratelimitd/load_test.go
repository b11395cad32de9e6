package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A seen is what became of one call, for its caller.
type seen struct {
	key       string // of the first entry asked for
	sent      time.Time
	took      time.Duration
	ok        bool
	origin    string // where its charge was paid, if the server tells (--response-metadata)
	remaining uint32 // of the first descriptor
	err       error
}

// descriptor asks for one limit; hits < 0 leaves the number of hits out.
func descriptor(key, value string, hits int) *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
	if hits >= 0 {
		d.HitsAddend = wrapperspb.UInt64(uint64(hits))
	}
	return d
}

// callOnce asks once, with no deadline that would matter.
func callOnce(ctx context.Context, client rlsv3.RateLimitServiceClient, descriptors ...*ratelimitv3.RateLimitDescriptor) seen {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a := seen{key: descriptors[0].Entries[0].Key, sent: time.Now()}
	resp, err := client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: descriptors})
	a.took, a.err = time.Since(a.sent), err
	if err == nil {
		a.ok = resp.OverallCode == rlsv3.RateLimitResponse_OK
		a.origin = resp.DynamicMetadata.GetFields()["origin"].GetStringValue()
		a.remaining = resp.Statuses[0].LimitRemaining
	}
	return a
}

// load asks rate times a second for as long as d, whether earlier answers came or not, and returns all answers.
func load(t *testing.T, clients []rlsv3.RateLimitServiceClient, rate int, d time.Duration, want func(i int) *ratelimitv3.RateLimitDescriptor) []seen {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var mu sync.Mutex
	var answers []seen
	var all sync.WaitGroup
	began, sent := time.Now(), 0
	for now := began; now.Sub(began) < d; now = <-tick.C {
		for due := int(now.Sub(began) * time.Duration(rate) / time.Second); sent < due; sent++ {
			i := sent
			all.Go(func() {
				a := callOnce(t.Context(), clients[i%len(clients)], want(i))
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, a)
			})
		}
	}
	all.Wait()
	return answers
}

// quantile returns within what time a part of the answers came; 0 if there are none.
func quantile(answers []seen, part float64) time.Duration {
	if len(answers) == 0 {
		return 0
	}
	took := make([]time.Duration, 0, len(answers))
	for _, a := range answers {
		took = append(took, a.took)
	}
	slices.Sort(took)
	return took[int(part*float64(len(took)-1))]
}

// tally writes quantiles and origins, for people.
func tally(answers []seen) string {
	origins := map[string]int{}
	for _, a := range answers {
		origins[a.origin]++
	}
	return fmt.Sprintf("%d answers: p50 %v, p99 %v, p99.9 %v, max %v, by origin %v", len(answers),
		quantile(answers, 0.5), quantile(answers, 0.99), quantile(answers, 0.999), quantile(answers, 1), origins)
}

// clients returns n connections to a server.
func clients(t *testing.T, s *server, n int) []rlsv3.RateLimitServiceClient {
	t.Helper()
	var all []rlsv3.RateLimitServiceClient
	for range n {
		all = append(all, rlsv3.NewRateLimitServiceClient(dialServer(t, s.GRPC)))
	}
	return all
}

// page returns what a port of the server shows at a path, whatever the status.
func (s *server) page(t *testing.T, addr, path string) string {
	t.Helper()
	client := &http.Client{Timeout: patience}
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// metric returns the sum of the series whose name and labels begin so.
func (s *server) metric(t *testing.T, prefix string) float64 {
	t.Helper()
	sum := 0.0
	for line := range strings.Lines(s.page(t, s.Admin, "/metrics")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(name+"}", prefix) {
			v, _ := strconv.ParseFloat(value, 64)
			sum += v
		} else if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == prefix {
			v, _ := strconv.ParseFloat(value, 64)
			sum += v
		}
	}
	return sum
}

// fileWith returns the path of a file with this content.
func fileWith(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
