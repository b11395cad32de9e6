package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/script"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// patient is a timeout that a busy machine keeps.
const patient = 5 * time.Second

// charge returns a charge of one hit on the bucket called name.
func charge(t testing.TB, name string, c bucket.Config) store.Charge {
	t.Helper()
	l, err := bucket.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return store.Charge{Key: key(t, name), Limit: l, Policy: &bucket.Policy{}, Hits: 1}
}

// key returns the key of the bucket called name.
func key(t testing.TB, name string) store.Key {
	t.Helper()
	k, err := store.NewKeyer([]byte("a secret for tests"))
	if err != nil {
		t.Fatal(err)
	}
	return k.Key(name, nil)
}

// take asks a store that must answer.
func take(t testing.TB, s store.Store, charges ...store.Charge) []store.Decision {
	t.Helper()
	out := make([]store.Decision, len(charges))
	if err := s.Take(context.Background(), charges, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// algorithms is a limit of n hits a unit for each algorithm.
func algorithms(n int64, u bucket.Unit) []bucket.Config {
	var configs []bucket.Config
	for a := bucket.TokenBucket; a <= bucket.SlidingLog; a++ {
		configs = append(configs, bucket.Config{Algorithm: a, Hits: n, Unit: u})
	}
	return configs
}

// TestVectors performs the plays that the arithmetic performs.
func TestVectors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	paths, err := filepath.Glob("../../bucket/testdata/*.txt")
	if err != nil || len(paths) < 3 {
		t.Fatalf("vectors: got %q (%v), want a file a family", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			var now atomic.Int64
			s := open(t, redisstore.Options{
				URL: server.URL(), Timeout: patient, Now: func() time.Time { return time.UnixMicro(now.Load()) },
			})
			script.Run(t, path, func(c script.Charge) bucket.Outcome {
				now.Store(c.Now)
				return outcome(take(t, s, asked(t, c))[0])
			})
		})
	}
}

// asked returns what a script asks as a charge.
func asked(t testing.TB, c script.Charge) store.Charge {
	books := map[bucket.Mode]store.Book{
		bucket.Fit: store.BookIfAdmitted, bucket.Report: store.BookAlways, bucket.Count: store.BookWhenRefuses,
	}
	return store.Charge{
		Key: key(t, c.Bucket), Limit: c.Limit, Hits: c.Ask.Hits, AtLeast: c.Ask.AtLeast, Tick: c.Ask.Tick,
		MaxDelay: time.Duration(c.Ask.MaxDelay) * time.Microsecond, Book: books[c.Ask.Mode],
	}
}

// outcome returns a decision as a script expects it.
func outcome(d store.Decision) bucket.Outcome {
	micros := func(d time.Duration) int64 {
		if d == bucket.Never {
			return -1
		}
		return d.Microseconds()
	}
	return bucket.Outcome{
		Allowed: d.Allowed, Granted: d.Granted, Remaining: d.Remaining, RetryAfter: micros(d.RetryAfter),
		ResetAfter: micros(d.ResetAfter), Delay: micros(d.Delay), Tick: d.Tick,
	}
}

// TestExactFromTwoNodes asks one key of 500 an hour 64 × 5,000 times, half through each of two stores.
func TestExactFromTwoNodes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	now := func() time.Time { return time.Unix(1_835_395_200, 0) } // no window ends, nothing refills
	stores := [2]*redisstore.Store{}
	for i := range stores {
		stores[i] = open(t, redisstore.Options{URL: server.URL(), Timeout: patient, Now: now})
	}
	calls := 5000
	if raceEnabled {
		calls = 300
	}
	for _, c := range algorithms(500, bucket.Hour) {
		if c.Algorithm != bucket.TokenBucket {
			calls = 100 // the others' arithmetic is held to Go's elsewhere
		}
		b := charge(t, c.Algorithm.String(), c)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				out := make([]store.Decision, 1)
				for range calls {
					if err := stores[i%2].Take(context.Background(), []store.Charge{b}, out); err != nil {
						t.Error(err)
						return
					}
					if out[0].Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if got := allowed.Load(); got != 500 {
			t.Errorf("%s: 64 × %d calls on 500 an hour: got %d allowed, want 500", c.Algorithm, calls, got)
		}
	}
}

// TestC55ClockOfRedis shows that no clock but that of Redis decides: two stores of one Redis share its bucket.
func TestC55ClockOfRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	b := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	c := charge(t, "shared", bucket.Config{Hits: 4, Unit: bucket.Hour})
	before, err := server.Client().Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	allowed := 0
	for _, s := range []*redisstore.Store{a, a, a, b, b, a, b} {
		d := take(t, s, c)[0]
		if d.Allowed {
			allowed++
			if at := time.UnixMicro(d.Tick - 1); at.Before(before) || at.After(before.Add(time.Minute)) {
				t.Errorf("booked at %v, want the clock of Redis, %v", at, before)
			}
		}
	}
	if allowed != 4 {
		t.Errorf("7 calls through two stores on 4: got %d allowed, want 4", allowed)
	}
}

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

func TestProvisionalKeyIsNotSent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	known := charge(t, "known", bucket.Config{Hits: 1, Unit: bucket.Hour})
	early := known
	early.Key = new(store.Keyer).Key("early", nil)
	early.Policy = &bucket.Policy{OnFailure: bucket.FailClosed}
	out := make([]store.Decision, 2)
	if err := s.Take(t.Context(), []store.Charge{known, early}, out); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got error %v, want ErrUnavailable", err)
	}
	want := []store.Decision{{Allowed: true, Origin: store.Unavailable}, {Origin: store.Unavailable}}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n, err := server.Client().DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("keys in redis: got %d (%v), want 0", n, err)
	}
}

func TestTooManyCharges(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL(), Timeout: patient})
	charges := make([]store.Charge, store.MaxCharges+1)
	for i := range charges {
		charges[i] = charge(t, "a", bucket.Config{Hits: 1, Unit: bucket.Hour})
	}
	if err := s.Take(t.Context(), charges, make([]store.Decision, len(charges))); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%d charges: got error %v, want ErrUnavailable", len(charges), err)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, err := redisstore.New(redisstore.Options{URL: server.URL(), Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	c := []store.Charge{charge(t, "a", bucket.Config{Hits: 1 << 20, Unit: bucket.Hour})}
	var wg sync.WaitGroup
	started := make(chan struct{}, 16)
	for range 16 {
		wg.Go(func() {
			out := make([]store.Decision, 1)
			for i := range 100_000 {
				if i == 1 {
					started <- struct{}{}
				}
				if err := s.Take(context.Background(), c, out); err != nil {
					if !errors.Is(err, store.ErrUnavailable) {
						t.Errorf("got error %v, want ErrUnavailable", err)
					}
					return
				}
			}
			t.Error("the store never closed")
		})
	}
	for range 16 {
		<-started
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	wg.Wait()
}
