package redisconn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestURL(t *testing.T) {
	t.Parallel()
	const odd = "p@ss:w/r#d%?"
	const encoded = "p%40ss%3Aw%2Fr%23d%25%3F"
	tests := []struct {
		url  string
		want target
	}{
		{"redis://host", target{addrs: []string{"host:6379"}}},
		{"redis://host:7000/3", target{addrs: []string{"host:7000"}, db: 3}},
		{"redis://host?db=4", target{addrs: []string{"host:6379"}, db: 4}},
		{"redis://[::1]", target{addrs: []string{"[::1]:6379"}}},
		{"redis://[2001:db8::1]:7000", target{addrs: []string{"[2001:db8::1]:7000"}}},
		{"redis://:" + encoded + "@host", target{addrs: []string{"host:6379"}, user: login{"", odd}}},
		{"redis://u%40ser:" + encoded + "@host", target{addrs: []string{"host:6379"}, user: login{"u@ser", odd}}},
		{"redis://user:a@b@host", target{addrs: []string{"host:6379"}, user: login{"user", "a@b"}}},
		{"redis://user:a:b@host", target{addrs: []string{"host:6379"}, user: login{"user", "a:b"}}},
		{"rediss://host", target{addrs: []string{"host:6379"}, tls: true}},
		{"redis://host?tls=true&server_name=db.example", target{addrs: []string{"host:6379"}, tls: true, serverName: "db.example"}},
		{"unix:///run/redis.sock", target{network: "unix", addrs: []string{"/run/redis.sock"}}},
		{"unix://user:word@/run/redis.sock?db=2", target{network: "unix", addrs: []string{"/run/redis.sock"}, db: 2, user: login{"user", "word"}}},
		{"redis-sentinel://main@h1,h2:7,h3/5", target{kind: Sentinel, master: "main", addrs: []string{"h1:26379", "h2:7", "h3:26379"}, db: 5}},
		{"rediss-sentinel://u:" + encoded + "@main@h1", target{kind: Sentinel, tls: true, master: "main", addrs: []string{"h1:26379"}, user: login{"u", odd}}},
		{
			"redis-sentinel://:w@main@h1?sentinel_username=s&sentinel_password=" + encoded,
			target{kind: Sentinel, master: "main", addrs: []string{"h1:26379"}, user: login{"", "w"}, sentinel: login{"s", odd}},
		},
		{"redis-cluster://u:w@h1:7000,h2", target{kind: Cluster, addrs: []string{"h1:7000", "h2:6379"}, user: login{"u", "w"}}},
		{"rediss-cluster://h1", target{kind: Cluster, tls: true, addrs: []string{"h1:6379"}}},
	}
	for _, tt := range tests {
		got, err := parse(tt.url)
		if err != nil {
			t.Errorf("%s: got error %v, want none", tt.url, err)
			continue
		}
		if tt.want.network == "" {
			tt.want.network = "tcp"
		}
		if diff := cmp.Diff(tt.want, *got, cmp.AllowUnexported(target{}, login{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.url, diff)
		}
	}
}

// TestBadURL holds that an error names the part, in one line, and no password.
func TestBadURL(t *testing.T) {
	t.Parallel()
	const canary = "canary"
	tests := map[string]string{ // → the part
		"":                                              "want redis://",
		"host:6379":                                     "want redis://",
		"http://:canary@host":                           "want redis://",
		"redis://":                                      "host",
		"redis://:canary@":                              "host",
		"redis://:canary@host:port":                     "host",
		"redis://:canary@host:0":                        "host",
		"redis://:canary@host:65536":                    "host",
		"redis://:canary@::1":                           "host",
		"redis://:canary@h1,h2":                         "hosts",
		"redis://:canary@h1,":                           "host",
		"redis://:canary@host/x":                        "database",
		"redis://:canary/x@host":                        "database",
		"redis://:canary@host/-1":                       "database",
		"redis://:canary#x@host":                        "#",
		"redis://:canary?x@host":                        "host",
		"redis://:canary x@host":                        "white space",
		"redis://:canary\x00@host":                      "control characters",
		"redis://:canary%zz@host":                       "password",
		"redis://%zz:canary@host":                       "user",
		"redis://canary@host":                           "user: want a password",
		"redis://:canary@host?timeout=canary":           "options",
		"redis://:canary@host?canary=1":                 "options",
		"redis://:canary@host?db=1&db=2":                "options",
		"redis://:canary@host?db=canary":                "option db",
		"redis://:canary@host?tls=canary":               "option tls",
		"redis://:canary@host?%zz":                      "options",
		"rediss://:canary@host?tls=false":               "option tls",
		"unix://canary":                                 "socket",
		"unix:///canary.sock?tls=true":                  "option tls",
		"redis-sentinel://h1,h2":                        "master",
		"redis-sentinel://:canary@@h1":                  "master",
		"redis-cluster://:canary@h1/1":                  "database",
		"redis://:canary@host?sentinel_password=canary": "sentinel_password",
	}
	for url, part := range tests {
		_, err := New(Options{URL: url})
		if err == nil {
			t.Errorf("%q: got no error, want one", url)
			continue
		}
		if got := err.Error(); !strings.Contains(got, part) || strings.Contains(got, canary) || strings.Contains(got, "\n") {
			t.Errorf("%q: got %q, want one line that names %q and no password", url, got, part)
		}
	}
}

func TestNothingPrinted(t *testing.T) {
	t.Parallel()
	r, err := New(Options{URL: "redis-sentinel://:canary@main@127.0.0.1:1?sentinel_password=canary"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if got := fmt.Sprintf(verb, r); got != "redisconn.Redis" {
			t.Errorf("%s: got %q, want a name only", verb, got)
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, url := range []string{"redis://u:p@h:1/2?db=3", "redis-sentinel://u:p@m@h1,h2/1", "rediss-cluster://[::1]:2,h", "unix://u:p@/x?db=1"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		got, err := parse(url)
		if err != nil {
			return
		}
		if len(got.addrs) == 0 || got.kind == Sentinel && got.master == "" || got.db < 0 {
			t.Errorf("%q: got %+v", url, got)
		}
	})
}
