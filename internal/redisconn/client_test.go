package redisconn

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestClient(t *testing.T) {
	t.Parallel()
	const password = "word"
	setup := redistest.Setup{Password: password}
	tests := map[string]func(t *testing.T) string{
		"one server": func(t *testing.T) string {
			return "redis://:word@" + redistest.StartWith(t, setup).Addr + "/2"
		},
		"sentinel": func(t *testing.T) string {
			return "redis-sentinel://:word@main@" + redistest.StartSentinels(t, setup, 0, 1, "").Addrs() + "/2"
		},
		"cluster": func(t *testing.T) string {
			c := redistest.StartCluster(t, setup, 3, 0, false)
			return strings.Replace(c.URL(), "://", "://:word@", 1)
		},
	}
	for name, start := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := New(Options{URL: start(t)})
			if err != nil {
				t.Fatal(err)
			}
			client := r.Client()
			defer func() {
				if err := client.Close(); err != nil {
					t.Error(err)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}()
			for i := range 20 { // in any slot
				key := fmt.Sprint("key", i)
				if err := client.Set(t.Context(), key, i, time.Minute).Err(); err != nil {
					t.Fatal(err)
				}
				if got, err := client.Get(t.Context(), key).Int(); err != nil || got != i {
					t.Errorf("%s: got %d (%v), want %d", key, got, err, i)
				}
			}
			heard := client.Subscribe(t.Context(), "notices")
			defer func() { _ = heard.Close() }()
			if _, err := heard.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := client.Publish(t.Context(), "notices", "something").Err(); err != nil {
				t.Fatal(err)
			}
			if m, err := heard.ReceiveMessage(t.Context()); err != nil || m.Payload != "something" {
				t.Errorf("notice: got %v (%v), want something", m, err)
			}
		})
	}
}

// TestMasterOfMany has Sentinels of the same master disagree: the one that has seen a failover is believed, wherever it
// stands, and one that is not there is not waited for.
func TestMasterOfMany(t *testing.T) {
	t.Parallel()
	stale := redistest.StartSentinels(t, redistest.Setup{}, 0, 1, "")
	fresh := redistest.StartSentinels(t, redistest.Setup{}, 1, 1, "")
	if err := fresh.Sentinels[0].Client().Do(t.Context(), "sentinel", "failover", redistest.MasterName).Err(); err != nil {
		t.Fatal(err)
	}
	for _, addrs := range []string{stale.Addrs() + "," + fresh.Addrs(), fresh.Addrs() + ",127.0.0.1:1," + stale.Addrs()} {
		r, err := New(Options{URL: "redis-sentinel://main@" + addrs})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		redistest.Await(t, 20*time.Second, "the replica that was promoted", func() bool {
			got, err := r.Master(t.Context())
			return err == nil && got == fresh.Servers[1].Addr
		})
	}
	other, err := New(Options{URL: "redis-sentinel://other@" + stale.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if got, err := other.Master(t.Context()); err == nil || !strings.Contains(err.Error(), "knows no master") {
		t.Errorf("a name that nobody knows: got %s (%v), want an error that says so", got, err)
	}
}

func TestFilesThatAreWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, text := filepath.Join(dir, "empty"), filepath.Join(dir, "text")
	for path, content := range map[string]string{empty: "\n", text: "canary"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	missing := filepath.Join(dir, "missing")
	tests := map[string]Options{
		"redis password file: " + empty + " is empty": {URL: "redis://h", PasswordFile: empty},
		"redis password file: open " + missing:        {URL: "redis://h", PasswordFile: missing},
		"redis username file: open " + missing:        {URL: "redis://h", UsernameFile: missing},
		"redis user: want a password":                 {URL: "redis://h", UsernameFile: text},
		"redis sentinel password file":                {URL: "redis-sentinel://m@h", SentinelPasswordFile: missing},
		"want a URL of redis-sentinel://":             {URL: "redis://h", SentinelPasswordFile: text},
		"redis ca file: open " + missing:              {URL: "redis://h", CAFile: missing},
		"no certificate in PEM":                       {URL: "redis://h", CAFile: text},
		"redis cert file and redis key file: want":    {URL: "redis://h", CertFile: text},
		"redis key file \"" + text + "\": tls: ":      {URL: "redis://h", CertFile: text, KeyFile: text},
		"a socket has no TLS":                         {URL: "unix:///s", SkipVerify: true},
	}
	for want, o := range tests {
		_, err := New(o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: got error %v, want one line with %q", o, err, want)
		}
	}
}
