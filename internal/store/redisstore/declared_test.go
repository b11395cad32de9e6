package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/store/storetest"
)

// monitor watches what a server executes and reports commands of scripts on keys that their call did not declare.
type monitor struct {
	mu     sync.Mutex
	calls  int
	inside int
	wrong  []string
}

// watch starts a monitor that ends with the test.
func watch(t *testing.T, addr string) *monitor {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(conn)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	if ok, err := lines.ReadString('\n'); err != nil || ok != "+OK\r\n" {
		t.Fatalf("monitor: got %q (%v), want +OK", ok, err)
	}
	m := new(monitor)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var declared []string
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			declared = m.see(line, declared)
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return m
}

// see takes note of one line: +time [db client] "COMMAND" "arg" … It returns the keys that are declared from here on.
func (m *monitor) see(line string, declared []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	head, rest, _ := strings.Cut(line, "] ")
	var words []string
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			break // the end of the line
		}
		word, _ := strconv.Unquote(quoted) // what is quoted by QuotedPrefix's own word
		words = append(words, word)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	if len(words) == 0 {
		return declared
	}
	command := strings.ToLower(words[0])
	if !strings.HasSuffix(head, " lua") {
		if command == "evalsha" || command == "eval" {
			m.calls++
			n, _ := strconv.Atoi(words[2])
			return words[3 : 3+n]
		}
		return nil
	}
	var touched []string
	switch command {
	case "mget", "del":
		touched = words[1:]
	case "set":
		touched = words[1:2]
	case "time":
	default:
		m.wrong = append(m.wrong, "unexpected: "+line)
	}
	for _, key := range touched {
		m.inside++
		if !slices.Contains(declared, key) {
			m.wrong = append(m.wrong, "undeclared: "+line)
		}
	}
	return declared
}

// TestC72DeclaredKeys runs the contract under a monitor: the script touches no key that its caller did not declare, and
// what is declared is keys.
func TestC72DeclaredKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m := watch(t, server.Addr)
	t.Run("Contract", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, now func() time.Time) store.Store {
			return open(t, redisstore.Options{URL: server.URL(), Timeout: patient, Now: now})
		})
	})
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: patient})
	for name, config := range everyKind(bucket.Year) {
		take(t, s, charge(t, name, config), charge(t, name, config))
	}
	redistest.Await(t, 10*time.Second, "commands seen", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.calls > 100 && m.inside > 100
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, line := range m.wrong[:min(len(m.wrong), 10)] {
		t.Error(line)
	}
}

// permissions is what docs/redis.md tells operators to grant.
var permissions = []any{"-@all", "+evalsha", "+eval", "+mget", "+set", "+del", "+time", "+get", "+setnx"}

// addUser adds a user with the documented permissions on the keys that match a pattern.
func addUser(t *testing.T, server *redistest.Server, name, keys string) {
	t.Helper()
	args := append([]any{"acl", "setuser", name, "on", ">word", "resetchannels", "~" + keys}, permissions...)
	if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestDocumentedACL runs under the user of docs/redis.md.
func TestDocumentedACL(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	words := make([]string, len(permissions))
	for i, p := range permissions {
		words[i], _ = p.(string)
	}
	if want := "~rl1:* " + strings.Join(words, " "); !strings.Contains(string(doc), want) {
		t.Errorf("docs/redis.md: want it to say %q", want)
	}
	server := redistest.Start(t)
	addUser(t, server, "limiter", "rl1:*")
	s := open(t, redisstore.Options{URL: "redis://limiter:word@" + server.Addr, Timeout: patient})
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	if _, err := s.Secret(t.Context()); err != nil {
		t.Errorf("secret: %v", err)
	}
	take(t, s, charge(t, "a", bucket.Config{Hits: 1, Unit: bucket.Year}), charge(t, "b", bucket.Config{Hits: 1, Unit: bucket.Year}))
}

// TestACL runs under a user that has one key only: what the script does beyond fails.
func TestACL(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	mine := charge(t, "mine", bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1, Unit: bucket.Year, Calendar: time.UTC})
	addUser(t, server, "limiter", mine.Key.String())
	s := open(t, redisstore.Options{URL: "redis://limiter:word@" + server.Addr, Timeout: patient})
	for _, c := range everyKind(bucket.Year) {
		// The same key for all: a new algorithm finds a state that it does not know.
		other := charge(t, "any", c)
		other.Key = mine.Key
		take(t, s, other)
		take(t, s, other, other)
	}
	other := charge(t, "other", bucket.Config{Hits: 1, Unit: bucket.Year})
	err := s.Take(context.Background(), []store.Charge{mine, other}, make([]store.Decision, 2))
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("a key that is not the user's: got error %v, want NOPERM", err)
	}
}
