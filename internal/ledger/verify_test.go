package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// plain are the keys of a ledger without a space.
var plain = newKeys("")

// Whichever byte of the file is another, the log is broken.
func TestFileTampered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := OpenFile(dir, Options{Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := l.Commit(t.Context(), count); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, FileName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := VerifyFile(path); err != nil || v.Last != 4 {
		t.Fatalf("untouched: got %+v, %v", v, err)
	}
	for i := range good[:len(good)-1] {
		b := &fileBackend{fields: map[string]string{}}
		bad := bytes.Clone(good)
		bad[i] ^= 1
		_, err := b.replay(bytes.NewReader(bad))
		want := int64(bytes.Count(good[:i], []byte("\n"))) + 1
		broken, ok := errors.AsType[*BrokenError](err)
		if !ok || broken.Seq != want {
			t.Fatalf("byte %d of entry %d altered to %q: got %v", i, want, bad[i], err)
		}
	}
	lines := bytes.SplitAfter(good, []byte("\n"))
	for name, bad := range map[string][]byte{
		"one taken out":   bytes.Join([][]byte{lines[0], lines[2], lines[3]}, nil),
		"first taken out": bytes.Join(lines[1:], nil),
		"two swapped":     bytes.Join([][]byte{lines[0], lines[2], lines[1], lines[3]}, nil),
		"one twice":       bytes.Join([][]byte{lines[0], lines[1], lines[1], lines[2]}, nil),
	} {
		if _, err := (&fileBackend{fields: map[string]string{}}).replay(bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
	// A line that was not finished is of a change that nobody was told of.
	if err := os.WriteFile(path, good[:len(good)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err = OpenFile(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if e, err := l.Commit(t.Context(), count); err != nil || e.Seq != 4 {
		t.Errorf("after a line that was cut short: got entry %v, %v, want 4", e, err)
	}
}

func TestRedisTampered(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	l := newRedis(c, 5, Options{})
	edit := func(ctx context.Context, i int64, do func(*Entry)) error {
		text, err := c.LIndex(ctx, plain.log, i).Result()
		if err != nil {
			return err
		}
		var e Entry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return err
		}
		do(&e)
		out, err := json.Marshal(&e)
		if err != nil {
			return err
		}
		return c.LSet(ctx, plain.log, i, out).Err()
	}
	for _, tc := range []struct {
		name   string
		tamper func(ctx context.Context) error
		want   string
	}{
		{"untouched", func(context.Context) error { return nil }, ""},
		{"another author", func(ctx context.Context) error {
			return edit(ctx, 2, func(e *Entry) { e.Who = "bob" })
		}, "audit log broken at entry 5: altered since it was written"},
		{"another author, hashed anew", func(ctx context.Context) error {
			return edit(ctx, 2, func(e *Entry) { e.Who = "bob"; e.Hash = e.seal() })
		}, "audit log broken at entry 6: does not follow the entry before it"},
		{"the last one hashed anew", func(ctx context.Context) error {
			return edit(ctx, -1, func(e *Entry) { e.Who = "bob"; e.Hash = e.seal() })
		}, "audit log broken at entry 7: not the entry that the settings were made by"},
		{"last taken out", func(ctx context.Context) error { return c.RPop(ctx, plain.log).Err() },
			"audit log broken at entry 7: missing, the log should end with entry 7"},
		{"oldest taken out", func(ctx context.Context) error { return c.LPop(ctx, plain.log).Err() },
			"audit log broken at entry 3: missing, although the log has room for it"},
		{"no JSON", func(ctx context.Context) error { return c.LSet(ctx, plain.log, 1, "{").Err() },
			"audit log broken at entry 4: not JSON: unexpected end of JSON input"},
		{"a setting changed", func(ctx context.Context) error { return c.HSet(ctx, plain.state, "n", "70").Err() },
			`audit log broken at entry 7: setting "n" is not what the log says it is`},
		{"all gone", func(ctx context.Context) error { return c.Del(ctx, plain.log).Err() },
			"audit log broken at entry 1: missing, the log should end with entry 7"},
		{"settings gone", func(ctx context.Context) error { return c.Del(ctx, plain.state).Err() },
			"audit log broken at entry 3: the settings do not know of it"},
		{"settings of an earlier moment", func(ctx context.Context) error {
			return edit(ctx, 2, func(e *Entry) { c.HSet(ctx, plain.state, headField, head(e.Seq, e.Hash), "n", "5") })
		}, "audit log broken at entry 6: the settings do not know of it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := t.Context()
			if err := c.FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			for range 7 {
				if _, err := l.Commit(ctx, count); err != nil {
					t.Fatal(err)
				}
			}
			if err := tc.tamper(ctx); err != nil {
				t.Fatal(err)
			}
			v, err := l.Verify(ctx)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("verify:\n got %q\nwant %q", got, tc.want)
			}
			if err == nil && (v.First != 3 || v.Last != 7 || v.Entries != 5) {
				t.Errorf("verified: got %+v, want entries 3 to 7", v)
			}
		})
	}
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	l := NewRedis(c, Options{})
	ctx := t.Context()
	big := strings.Repeat("rules ", 1000)
	keep := func(State) (*Change, error) {
		return &Change{What: "keep", Set: map[string]string{"big": Digest(big)}, Blobs: map[string]string{Digest(big): big}}, nil
	}
	if _, err := l.Commit(ctx, keep); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Blob(ctx, Digest(big)); err != nil || got != big {
		t.Errorf("blob: got %d bytes, %v", len(got), err)
	}
	if err := c.HSet(ctx, plain.blobs, Digest(big), "other").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Blob(ctx, Digest(big)); err == nil {
		t.Error("an altered value was not noticed")
	}
	drop := func(State) (*Change, error) { return &Change{What: "drop", Drop: []string{Digest(big)}}, nil }
	if _, err := l.Commit(ctx, drop); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Blob(ctx, Digest(big)); err == nil || errors.Is(err, redis.Nil) {
		t.Errorf("dropped value: got %v, want an error of ours", err)
	}
}

// Deployments with a space of their own share a Redis and nothing in it.
func TestSpaces(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	for _, space := range []string{"", "a", "b"} {
		e, err := NewRedis(c, Options{Space: space}).Commit(t.Context(), count)
		if err != nil || e.Seq != 1 {
			t.Errorf("space %q: got entry %+v, %v, want its first", space, e, err)
		}
	}
}
