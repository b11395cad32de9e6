package redisconn

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// What a real Redis answers is told from its silence, whether it answers the command or the greeting before it.
func TestRefusal(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		prepare func(t *testing.T, s *redistest.Server) // what stands in the way
		user    string
		want    string // in the error; "" is no refusal
	}{
		"no right to the command": {user: "few:word", want: "'hset' command; docs/redis.md#permissions"},
		"no such user":            {user: "nobody:word", want: "is disabled; want a user"},
		"no user where one is wanted": {
			prepare: func(t *testing.T, s *redistest.Server) { do(t, s, "config", "set", "requirepass", "word") },
			want:    "required; want a user",
		},
		"a key of another type": {
			prepare: func(t *testing.T, s *redistest.Server) { do(t, s, "set", "key", "text") },
			want:    "a key of ratelimitd holds something else",
		},
		"a replica": {
			prepare: func(t *testing.T, s *redistest.Server) { do(t, s, "replicaof", "127.0.0.1", "1") },
			want:    "want the master",
		},
		"a full memory": {
			prepare: func(t *testing.T, s *redistest.Server) { do(t, s, "config", "set", "maxmemory", "1") },
			want:    "OOM",
		},
		"a replica that waits for its master": {
			prepare: func(t *testing.T, s *redistest.Server) {
				do(t, s, "config", "set", "replica-serve-stale-data", "no", "replica-read-only", "no")
				do(t, s, "replicaof", "127.0.0.1", "1")
			},
		},
		"nobody there":   {prepare: func(_ *testing.T, s *redistest.Server) { s.Stop() }},
		"one that hangs": {prepare: func(_ *testing.T, s *redistest.Server) { s.Signal(syscall.SIGSTOP) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			do(t, s, "acl", "setuser", "few", "on", ">word", "~*", "+get")
			url := "redis://" + s.Addr
			if tt.user != "" {
				url = "redis://" + tt.user + "@" + s.Addr
			}
			if tt.prepare != nil {
				tt.prepare(t, s)
			}
			r, err := New(Options{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			client := r.Client()
			defer func() {
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			}()
			err = client.HSet(t.Context(), "key", "field", "value").Err()
			if err == nil {
				t.Fatal("got no error")
			}
			refused := Refusal(err)
			switch {
			case tt.want == "" && refused != nil:
				t.Errorf("got the refusal %v, want none", refused)
			case tt.want != "" && refused == nil:
				t.Errorf("got no refusal of %v, want one with %q", err, tt.want)
			case tt.want != "" && !strings.Contains(refused.Error(), tt.want):
				t.Errorf("got %q, want %q in it", refused, tt.want)
			}
		})
	}
	once := Refusal(redisError("NOPERM no"))
	if got := Refusal(fmt.Errorf("again: %w", once)); got == nil || got.Error() != "again: "+once.Error() {
		t.Errorf("a refusal: got %v, want its words once", got)
	}
	if got := Refusal(nil); got != nil {
		t.Errorf("no error: got %v", got)
	}
	if got := Refusal(redis.ErrClosed); got != nil {
		t.Errorf("client closed: got %v", got)
	}
}

// redisError is an answer of Redis.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// do has the server carry out a command.
func do(t *testing.T, s *redistest.Server, args ...any) {
	t.Helper()
	if err := s.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}
