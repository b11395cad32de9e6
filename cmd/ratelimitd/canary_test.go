package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// S17: whatever befalls a Redis, and wherever its credentials come from, they are in nothing that a process says: not in
// its log at its most talkative, not in answers, metrics and pages, not in what commands print.
func TestCredentialsAreNotShown(t *testing.T) {
	t.Parallel()
	const password, stale, user = "hunter2-canary", "hunter1-stale-canary", "user-canary"
	redis := redistest.Start(t, "--requirepass", password)
	file := func(text string) string { return fileWith(t, text) }
	for name, flags := range map[string][]string{
		"right":     {"--redis-url-file", file("redis://:" + password + "@" + redis.Addr)},
		"from file": {"--redis-url", "redis://" + redis.Addr, "--redis-password-file", file(password)},
		"wrong":     {"--redis-url-file", file("redis://:" + stale + "@" + redis.Addr)},
		"user":      {"--redis-url-file", file("redis://" + user + ":" + password + "@" + redis.Addr)},
		"nobody":    {"--redis-url-file", file("redis://" + user + ":" + password + "@127.0.0.1:1")},
		"no tls":    {"--redis-url-file", file("rediss://" + user + ":" + password + "@" + redis.Addr)},
		"sentinel":  {"--redis-url-file", file("redis-sentinel://" + user + ":" + password + "@main@127.0.0.1:1"), "--redis-sentinel-password-file", file(stale)},
		"bad":       {"--redis-url-file", file("redis://" + user + ":" + password + "@%zz")},
		"bad form":  {"--redis-url-file", file("rediss:" + user + ":" + password + "@" + redis.Addr)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := fileWith(t, oneRule)
			var said strings.Builder
			for _, command := range []string{"explain", "key"} {
				out, _ := exec.Command("ratelimitd", append([]string{command, "--rules", rules, "shop | [api=x]"}, flags...)...).CombinedOutput()
				said.Write(out)
			}
			if strings.HasPrefix(name, "bad") {
				out, err := exec.Command("ratelimitd", append([]string{"serve", "--rules", rules}, flags...)...).CombinedOutput()
				if err == nil {
					t.Error("a URL that is none: got no error")
				}
				said.Write(out)
			} else {
				s := startServer(t, oneRule, append(flags, "--log-level", "debug", "--response-metadata")...)
				client := clients(t, s, 1)[0]
				for range 30 { // enough to open a breaker
					a := callOnce(t.Context(), client, descriptor("api", "x", -1))
					if a.err != nil {
						t.Fatal(a.err)
					}
				}
				for _, page := range []string{
					"/", "/metrics", "/rlconfig", "/config", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap",
					"/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=2", "/debug/pprof/allocs?debug=1",
				} {
					said.WriteString(s.page(t, s.Admin, page))
				}
				for _, page := range []string{"/readyz?verbose", "/healthcheck"} {
					said.WriteString(s.page(t, s.HTTP, page))
				}
				s.signal(t, os.Interrupt)
				said.WriteString(s.said())
			}
			if said.Len() < 200 {
				t.Errorf("got only %q: this test shows nothing", said.String())
			}
			for _, canary := range []string{password, stale, user} {
				if i := strings.Index(said.String(), canary); i >= 0 {
					t.Errorf("%q is shown: …%s…", canary, said.String()[max(0, i-100):min(said.Len(), i+100)])
				}
			}
		})
	}
}
