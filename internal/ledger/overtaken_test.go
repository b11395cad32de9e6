package ledger

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// interrupted is a backend where others make changes just before entries are read.
type interrupted struct {
	backend
	before func() // entries is called
}

func (b *interrupted) entries(ctx context.Context, seq int64, n int, yield func(*Entry)) error {
	b.before()
	return b.backend.entries(ctx, seq, n, yield)
}

func counts(t *testing.T, l *Ledger, n int) {
	t.Helper()
	for range n {
		if _, err := l.Commit(t.Context(), count); err != nil {
			t.Fatal(err)
		}
	}
}

// Changes while the log is read push its oldest entries out, and break nothing.
func TestVerifyWhileOthersChange(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	for _, tc := range []struct {
		name    string
		keep    int64
		there   int // entries, before
		at      int // the read of entries that the changes come before
		changes int
	}{
		{"one, log not full", 5, 3, 1, 1},
		{"one, log just full", 5, 4, 1, 1},
		{"one, log full", 5, 7, 1, 1},
		{"all but the last are new", 5, 7, 1, 4},
		{"all are new", 5, 7, 1, 5},
		{"more than are kept", 5, 7, 1, 12},
		{"between pages", page + 100, page + 100, 2, page + 1},
		{"between pages, all", page + 100, page + 100, 2, page + 150},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := Options{Space: tc.name}
			others := newRedis(c, tc.keep, o)
			counts(t, others, tc.there)
			l, reads := newRedis(c, tc.keep, o), 0
			l.backend = &interrupted{l.backend, func() {
				if reads++; reads == tc.at {
					counts(t, others, tc.changes)
				}
			}}
			v, err := l.Verify(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if reads < tc.at {
				t.Fatalf("%d reads, want %d at the least: nothing was tested", reads, tc.at)
			}
			now := int64(tc.there + tc.changes)
			if v.Last < int64(tc.there) || v.Last > now || v.First < 1 || v.Entries != v.Last-v.First+1 {
				t.Errorf("verified: got %+v, want entries up to one of %d to %d", v, tc.there, now)
			}
			// What is taken out is noticed nevertheless, at the latest when nobody changes anything.
			if now <= tc.keep {
				return
			}
			if err := c.LPop(t.Context(), newKeys(tc.name).log).Err(); err != nil {
				t.Fatal(err)
			}
			if broken, ok := errors.AsType[*BrokenError](verifyError(t, l)); !ok || broken.Seq != now-tc.keep+1 {
				t.Errorf("oldest taken out: got %v, want broken at %d", broken, now-tc.keep+1)
			}
		})
	}
}

func verifyError(t *testing.T, l *Ledger) error {
	t.Helper()
	_, err := l.Verify(t.Context())
	return err
}

// twice is a client that did not hear the answer to a change, and so asks for it again. Then others are busy before
// whatever it asks.
type twice struct {
	asked  bool
	others func()
}

func (h *twice) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.asked {
			h.others()
		}
		args := cmd.Args()
		if args[0] != "evalsha" || args[1] != commitScript.Hash() {
			return next(ctx, cmd)
		}
		h.asked = true
		if err := next(ctx, cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

// lostAnswer commits to a full log a change whose answer is lost. Others make so many changes each time that somebody asks
// what became of it; it returns how often that was.
func lostAnswer(t *testing.T, meanwhile ...int) (e *Entry, asked int, err error) {
	t.Helper()
	server := redistest.Start(t)
	others := newRedis(server.Client(), 3, Options{})
	counts(t, others, 4)
	c := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer c.Close()
	c.AddHook(&twice{others: func() {
		if asked++; asked <= len(meanwhile) {
			counts(t, others, meanwhile[asked-1])
		}
	}})
	e, err = newRedis(c, 3, Options{Node: "here"}).Commit(t.Context(), count)
	return e, asked, err
}

// A change whose answer was lost is not made twice, although others push entries out of the log meanwhile.
func TestLostAnswerInFullLog(t *testing.T) {
	t.Parallel()
	e, asked, err := lostAnswer(t, 1, 1)
	if err != nil || e.Seq != 5 {
		t.Fatalf("got entry %+v, %v, want 5", e, err)
	}
	if asked == 0 {
		t.Fatal("nobody looked for the entry: nothing was tested")
	}
}

// Who can no longer find out whether a change was made says so, and does not make it again.
func TestLostAnswerPushedOut(t *testing.T) {
	t.Parallel()
	if e, _, err := lostAnswer(t, 3); err == nil {
		t.Errorf("got entry %d, want an error: it may have been made twice", e.Seq)
	}
}
