package app

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// Processes agree on a secret, also after Redis was flushed, and keep the one they know while Redis is away.
func TestKeySecretIsShared(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, err := redisstore.New(redisstore.Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var log strings.Builder
	newPupil := func() *pupil {
		return &pupil{redis: client, keyer: new(store.Keyer), log: slog.New(slog.NewTextHandler(&log, nil))}
	}
	// ask retries: Redis answers in milliseconds, but the machine may be busy.
	ask := func(p *pupil) {
		t.Helper()
		for range 100 {
			if p.ask(t.Context()); !p.failing {
				return
			}
		}
		t.Fatalf("the secret cannot be read:\n%s", &log)
	}
	key := func(p *pupil) store.Key { return p.keyer.Key("limit", []string{"value"}) }

	one, two := newPupil(), newPupil()
	ask(one)
	ask(two)
	if one.known == "" || key(one) != key(two) || key(one).Provisional() {
		t.Errorf("keys of two processes: got %v and %v, want equal ones", key(one), key(two))
	}
	before := key(one)

	server.Client().FlushAll(t.Context())
	ask(two)
	ask(one)
	if key(one) == before || key(one) != key(two) {
		t.Errorf("keys after a flush: got %v and %v, want equal ones, not %v", key(one), key(two), before)
	}
	if !strings.Contains(log.String(), "key secret in Redis has changed") {
		t.Errorf("the log does not tell of the change:\n%s", &log)
	}

	before = key(one)
	server.Stop()
	log.Reset()
	one.ask(t.Context())
	one.ask(t.Context())
	if !one.failing || key(one) != before {
		t.Errorf("without Redis: got key %v, failing %t, want %v, true", key(one), one.failing, before)
	}
	if n := strings.Count(log.String(), "trying on"); n != 1 {
		t.Errorf("two failures in a row: got %d log lines, want 1:\n%s", n, &log)
	}
}
