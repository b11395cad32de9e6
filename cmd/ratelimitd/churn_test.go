package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// churnBase is more than any version's number, so that an answer's limit tells the version.
const churnBase = 1_000_000

// churn is a directory of rules as Kubernetes shows one, with a version after another, and the process that follows it.
type churn struct {
	t       *testing.T
	dir     string
	args    []string
	written int // directories so far
	s       *server

	wanted  atomic.Int64 // the last good version that was written
	seen    atomic.Int64 // the last version that an answer told
	answers atomic.Int64 // of this process
	stop    func()       // ends the questions
}

// publish makes the volume show the files of one directory, at one moment.
func (c *churn) publish(a, b string) {
	c.t.Helper()
	c.written++
	target := fmt.Sprintf("..%d", c.written)
	link := filepath.Join(c.dir, "..data")
	for _, err := range []error{
		os.Mkdir(filepath.Join(c.dir, target), 0o755),
		os.WriteFile(filepath.Join(c.dir, target, "a.yaml"), []byte(a), 0o644),
		os.WriteFile(filepath.Join(c.dir, target, "b.yaml"), []byte(b), 0o644),
		os.Symlink(target, link+"_tmp"),
		os.Rename(link+"_tmp", link),
		os.RemoveAll(filepath.Join(c.dir, fmt.Sprintf("..%d", c.written-1))),
	} {
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// churnRules are those of a domain in version n.
func churnRules(domain string, n int) string {
	return fmt.Sprintf("domain: %s\ndescriptors:\n  - {key: k, rate_limit: {unit: hour, requests_per_unit: %d}}\n", domain, churnBase+n)
}

// spoil returns the files of a version that must be refused, whole.
func spoil(r *rand.Rand, n int) (a, b string) {
	a, b = churnRules("a", n), churnRules("b", n)
	switch r.IntN(5) {
	case 0:
		a = a[:len(a)/2] // cut
	case 1:
		b = "" // emptied
	case 2:
		b = "domain: b\ndescriptors:\n  - {key: k, rate_limit: {unit: hour}}\n" // the number forgotten
	case 3:
		b += "descriptors: []\n" // a second list that would take the first one's place
	case 4:
		a, b = "domain: a\n", "domain: b\n" // nothing left
	}
	return a, b
}

// serve runs the process, and asks it all the time, of one domain and the other: each answer must be of the version before
// or a later one.
func (c *churn) serve() {
	c.t.Helper()
	c.s = startProcess(c.t, nil, c.args...)
	client := rlsv3.NewRateLimitServiceClient(dialServer(c.t, c.s.GRPC))
	ctx, cancel := context.WithCancel(c.t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			resp, err := client.ShouldRateLimit(context.WithoutCancel(ctx), &rlsv3.RateLimitRequest{
				Domain: string("ab"[i%2]),
				Descriptors: []*ratelimitv3.RateLimitDescriptor{{
					Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}},
				}},
			})
			if err != nil {
				c.t.Errorf("a decision failed: %v", err)
				return
			}
			n := int64(resp.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit()) - churnBase
			if last := c.seen.Load(); n < last {
				c.t.Errorf("an answer of version %d after one of %d", n, last)
				return
			}
			if wanted := c.wanted.Load(); n > wanted {
				c.t.Errorf("an answer of version %d, which was not good or is not written: the last is %d", n, wanted)
				return
			}
			c.seen.Store(n)
			c.answers.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
		}
	})
	c.stop = func() {
		cancel()
		asking.Wait()
	}
}

// kill ends the process at once, and begins anew with what it finds.
func (c *churn) kill() {
	c.t.Helper()
	c.stop()
	c.s.signal(c.t, syscall.SIGKILL)
	<-c.s.done
	c.answers.Store(0)
	c.serve()
}

// decided reports whether the last good version decides, in this process.
func (c *churn) decided() bool { return c.answers.Load() > 0 && c.seen.Load() == c.wanted.Load() }

// refused reports whether the process has found a bad version.
func (c *churn) refused() bool { return !configOf(c.t, c.s.Admin).LastOK }

// await waits for something that the process does.
func (c *churn) await(what string, happened func() bool) {
	c.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-tick.C:
		case <-deadline.C:
			c.t.Fatalf("not within %v: %s; version %d is wanted, the last answer is of %d", patience, what, c.wanted.Load(), c.seen.Load())
		}
		if c.t.Failed() {
			c.t.FailNow()
		}
	}
}

// R15: a version after another, one in twenty bad, and kill -9 at random: no good one is lost, none comes after a later
// one, none is seen by halves, and no decision fails. A start that finds a bad version has the last good one.
func TestRuleChurnSoak(t *testing.T) {
	t.Parallel()
	versions, seed := 200, rand.Uint64()
	if soak {
		versions = 1000
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	c := &churn{t: t, dir: t.TempDir()}
	c.args = append([]string{"ratelimitd", "serve", "--rules", c.dir, "--state-dir", t.TempDir()}, freePorts()...)
	c.wanted.Store(1)
	c.publish(churnRules("a", 1), churnRules("b", 1))
	for _, name := range []string{"a.yaml", "b.yaml"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	c.serve()
	bad, kills := 0, 0
	var slowest time.Duration
	for n := 2; n <= versions; n++ {
		// One of each is certain, the rest is chance.
		spoiled, killed := n == 7 || r.IntN(20) == 0, n == 7 || r.IntN(15) == 0
		if spoiled {
			bad++
			c.publish(spoil(r, n))
		} else {
			c.wanted.Store(int64(n))
			c.publish(churnRules("a", n), churnRules("b", n))
		}
		began := time.Now()
		switch {
		case killed:
			kills++
			c.kill()
		case r.IntN(4) > 0:
			c.s.signal(t, syscall.SIGHUP) // for haste: otherwise it waits until the files are quiet
		}
		c.await("the last good version decides", c.decided)
		if spoiled {
			c.await("the bad one is refused", c.refused)
		} else if !killed {
			slowest = max(slowest, time.Since(began))
		}
	}
	c.stop()
	// The count of versions goes on over all processes: none was missed, none came twice.
	if got, want := configOf(t, c.s.Admin).Version, versions-bad; got != want {
		t.Errorf("versions that became current: got %d, want %d", got, want)
	}
	t.Logf("%d versions, %d bad, %d kills; the slowest was current after %v", versions, bad, kills, slowest)
}

// configPage is what /config shows.
type configPage struct {
	Version       int
	OriginVersion string `json:"origin_version"`
	Error         string
	LastOK        bool `json:"last_load_ok"`
	Restored      bool
}

func configOf(t *testing.T, admin string) (page configPage) {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + admin + "/config")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		t.Fatal(err)
	}
	return page
}
