package ledger

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// headField is the field of the state that holds seq and hash of the last entry.
const headField = "head"

// keys are a ledger's, all in one slot of a cluster. They have no time to live: under an eviction policy of volatile-*
// they stay.
type keys struct {
	state   string // a hash: the fields, and the head
	log     string // a list of entries
	blobs   string // a hash: digest → value
	nodes   string // a hash: node → report
	channel string // something is said here after every change
}

// newKeys returns the keys of a space; one without a name has the plain ones.
func newKeys(space string) keys {
	tag := "rl1:{audit}"
	if space != "" {
		tag = "rl1:{audit-" + Digest(space)[:12] + "}"
	}
	return keys{state: tag + ":state", log: tag + ":log", blobs: tag + ":blobs", nodes: tag + ":nodes", channel: tag}
}

// maxEntries is how many entries of the log are kept in Redis; older ones go. A thousand bytes each.
const maxEntries = 100_000

//go:embed commit.lua
var commitSource string

//go:embed entries.lua
var entriesSource string

var (
	commitScript  = redis.NewScript(commitSource)
	entriesScript = redis.NewScript(entriesSource)
)

// NewRedis returns a ledger in the Redis that c reaches, for all who use it. It does not wait for Redis. The caller
// closes c.
func NewRedis(c redis.UniversalClient, o Options) *Ledger {
	return newRedis(c, maxEntries, o)
}

func newRedis(c redis.UniversalClient, keep int64, o Options) *Ledger {
	l := newLedger(&redisBackend{newKeys(o.Space), c, keep}, o)
	l.keep = keep
	return l
}

type redisBackend struct {
	keys
	c    redis.UniversalClient
	keep int64 // entries
}

func (b *redisBackend) close() error { return nil }

// failed returns the error of a command: a refusal, or ErrUnavailable.
func failed(doing string, err error) error {
	if refused := redisconn.Refusal(err); refused != nil {
		return fmt.Errorf("%s: %w", doing, refused)
	}
	return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}

func (b *redisBackend) state(ctx context.Context) (State, error) {
	fields, err := b.c.HGetAll(ctx, b.keys.state).Result()
	if err != nil {
		return State{}, failed("read settings in Redis", err)
	}
	st := State{Fields: fields}
	if head, ok := fields[headField]; ok {
		delete(fields, headField)
		seq, hash, _ := strings.Cut(head, " ")
		if st.Seq, err = strconv.ParseInt(seq, 10, 64); err != nil || hash == "" {
			return State{}, fmt.Errorf("settings in Redis: head %q of %s: want a number and a hash", head, b.keys.state)
		}
		st.Hash = hash
	}
	return st, nil
}

func head(seq int64, hash string) string {
	if seq == 0 {
		return ""
	}
	return strconv.FormatInt(seq, 10) + " " + hash
}

func (b *redisBackend) commit(ctx context.Context, e *Entry, c *Change) (bool, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return false, err
	}
	args := []any{head(e.Seq-1, e.Prev), head(e.Seq, e.Hash), line, b.keep, len(c.Set)}
	for field, value := range c.Set {
		args = append(args, field, value)
	}
	args = append(args, len(c.Blobs))
	for digest, value := range c.Blobs {
		args = append(args, digest, value)
	}
	for _, digest := range c.Drop {
		args = append(args, digest)
	}
	done, err := commitScript.Run(ctx, b.c, []string{b.keys.state, b.keys.log, b.keys.blobs}, args...).Int()
	if err != nil {
		return false, failed("change settings in Redis", err)
	}
	if done == 1 {
		b.announce(ctx)
	}
	return done == 1, nil
}

// announce says something on the channel. It is only a nudge: who misses it finds a change by looking.
func (b *redisBackend) announce(ctx context.Context) { _ = b.c.Publish(ctx, b.channel, "").Err() }

func (b *redisBackend) entries(ctx context.Context, seq int64, n int, yield func(*Entry)) error {
	if n <= 0 {
		return nil
	}
	lines, err := entriesScript.Run(ctx, b.c, []string{b.keys.log}, seq, n).StringSlice()
	if err != nil {
		return failed("read audit log in Redis", err)
	}
	if len(lines) == 0 {
		return nil
	}
	var first Entry
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		return &BrokenError{Seq: 1, Why: "the oldest entry is not JSON: " + err.Error()}
	}
	for i, line := range lines[1:] {
		e := new(Entry)
		if err := json.Unmarshal([]byte(line), e); err != nil {
			return &BrokenError{Seq: max(seq, first.Seq) + int64(i), Why: "not JSON: " + err.Error()}
		}
		yield(e)
	}
	return nil
}

func (b *redisBackend) blob(ctx context.Context, digest string) (string, error) {
	value, err := b.c.HGet(ctx, b.keys.blobs, digest).Result()
	if errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("value %.12s…: no longer kept", digest)
	}
	if err != nil {
		return "", failed("read value in Redis", err)
	}
	return value, nil
}

// follow nudges at every message, and whenever the subscription is made anew: messages may have been missed.
func (b *redisBackend) follow(ctx context.Context, nudge func()) {
	sub := b.c.Subscribe(ctx, b.channel)
	defer sub.Close()
	messages := sub.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-messages:
			if !ok {
				return
			}
			nudge()
		}
	}
}
