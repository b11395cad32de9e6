package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

func TestSecretIsShared(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	secrets := make([]string, 8)
	var wg sync.WaitGroup
	for i := range secrets {
		s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
		wg.Go(func() {
			secret, err := s.Secret(context.Background())
			if err != nil {
				t.Error(err)
			}
			secrets[i] = string(secret)
		})
	}
	wg.Wait()
	for i, s := range secrets {
		if len(s) != 32 || s != secrets[0] {
			t.Errorf("secret %d: got %d bytes, equal to the first %t; want the same 32 bytes", i, len(s), s == secrets[0])
		}
	}
	if ttl, err := server.Client().TTL(t.Context(), "rl1:key-secret").Result(); err != nil || ttl != -1 {
		t.Errorf("TTL of the secret: got %v (%v), want none", ttl, err)
	}
	if err := server.Client().Set(t.Context(), "rl1:key-secret", "short", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, redisstore.Options{URL: server.URL(), Timeout: patient}).Secret(t.Context())
	if want := `key secret in redis at "rl1:key-secret": got 5 bytes, want 32`; err == nil || err.Error() != want {
		t.Errorf("a short secret: got %v, want %s", err, want)
	}
}

func TestUnixSocketAndPassword(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "redis.sock")
	redistest.Start(t, "--unixsocket", path, "--requirepass", "p@ss:/#%word")
	s := open(t, redisstore.Options{URL: "unix://:p%40ss%3A%2F%23%25word@" + path + "?db=1", Timeout: patient})
	if d := take(t, s, charge(t, "a", bucket.Config{Hits: 1, Unit: bucket.Hour}))[0]; !d.Allowed {
		t.Errorf("over a unix socket: got %+v, want allowed", d)
	}
}

func TestBadURL(t *testing.T) {
	t.Parallel()
	const canary = "canary-password"
	for _, url := range []string{
		"", "localhost:6379", "http://u:" + canary + "@host", "redis://u:" + canary + "%zz@host", "redis://u:" + canary + "@host:6379/notadb",
		canary + "://host", "redis://u:p@host?nonsense=" + canary, "redis://u:" + canary + "@ho st", "redis://:" + canary + "\x00@host",
	} {
		s, err := redisstore.New(redisstore.Options{URL: url})
		if err == nil {
			_ = s.Close()
			t.Errorf("%q: got no error, want one", url)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("%q: the error tells the password: %v", url, err)
		}
	}
}

// TestC74PasswordStaysSecret provokes every error that a store can give or log and looks for the password.
func TestC74PasswordStaysSecret(t *testing.T) {
	t.Parallel()
	const canary = "canary-password"
	var log lines
	logger := slog.New(slog.NewTextHandler(&log, nil))
	wrong := redistest.Start(t, "--requirepass", "another")
	gone := redistest.Start(t)
	gone.Stop()
	for _, addr := range []string{wrong.Addr, gone.Addr, "host.invalid:1"} {
		s := open(t, redisstore.Options{URL: "redis://user:" + canary + "@" + addr, Timeout: patient, Logger: logger})
		out := make([]store.Decision, 1)
		err := s.Take(t.Context(), []store.Charge{charge(t, "a", bucket.Config{Hits: 1, Unit: bucket.Hour})}, out)
		_, secretErr := s.Secret(t.Context())
		for _, err := range []error{err, secretErr, s.Ping(t.Context())} {
			if err == nil || strings.Contains(fmt.Sprintf("%+v", err), canary) {
				t.Errorf("%s: got %v, want an error without the password", addr, err)
			}
		}
	}
	if text := log.String(); strings.Contains(text, canary) || !strings.Contains(text, "redis does not take charges") {
		t.Errorf("log: got %q, want a line without the password", text)
	}
}

// lines is a log to look at.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
