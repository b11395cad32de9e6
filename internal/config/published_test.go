package config

import (
	"bufio"
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/ledger"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// rulesOf are rules with a limit of n.
func rulesOf(n int64) []rule.File {
	return []rule.File{{Name: "rules.yaml", Data: fmt.Appendf(nil, good, n)}}
}

func by(expect int64) Publication {
	return Publication{Expect: expect, Author: "ann", Who: "ann", Reason: "ticket 7"}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := ledger.NewRedis(redistest.Start(t).Client(), ledger.Options{})
	p := NewPublished(l, Options{})
	if _, _, err := p.Files(ctx, 0); !errors.Is(err, ErrNotPublished) {
		t.Errorf("before the first: got %v, want %v", err, ErrNotPublished)
	}
	for n := range int64(KeptVersions + 5) {
		if v, err := p.Publish(ctx, rulesOf(n+1), by(n)); err != nil || v.Number != n+1 {
			t.Fatalf("version %d: got %+v, %v", n+1, v, err)
		}
	}
	const last = KeptVersions + 5
	for name, tt := range map[string]struct {
		do   func() error
		want error
	}{
		"on an older version": {func() error { _, err := p.Publish(ctx, rulesOf(9), by(3)); return err }, ErrStale},
		"without a reason": {func() error {
			_, err := p.Publish(ctx, rulesOf(9), Publication{Expect: last, Author: "ann"})
			return err
		}, ErrNoReason},
		"empty":                           {func() error { _, err := p.Publish(ctx, nil, by(last)); return err }, ErrEmpty},
		"rolled back too far":             {func() error { _, err := p.Rollback(ctx, 5, by(last)); return err }, ErrNoVersion},
		"rolled back on an older version": {func() error { _, err := p.Rollback(ctx, last-2, by(3)); return err }, ErrStale},
	} {
		if err := tt.do(); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	_, err := p.Publish(ctx, []rule.File{{Name: "rules.yaml", Data: []byte(bad)}}, by(last))
	if mistakes, ok := errors.AsType[rule.Errors](err); !ok || len(mistakes) != 2 {
		t.Errorf("bad rules: got %v, want both mistakes", err)
	}
	back, err := p.Rollback(ctx, last-2, by(last))
	if err != nil || back.Number != last+1 || back.Of != last-2 {
		t.Fatalf("rolled back: got %+v, %v", back, err)
	}
	_, files, err := p.Files(ctx, 0)
	if diff := cmp.Diff(rulesOf(last-2), files); err != nil || diff != "" {
		t.Errorf("files after it: %v (-want +got):\n%s", err, diff)
	}
	history, err := p.History(ctx)
	if err != nil || len(history) != KeptVersions || history[0].Number != last+1 || history[KeptVersions-1].Number != last+2-KeptVersions {
		t.Errorf("history: got %d versions from %d, %v", len(history), history[0].Number, err)
	}
	if _, err := l.Verify(ctx); err != nil {
		t.Error(err)
	}
	st, err := l.State(ctx)
	if err != nil || len(st.Fields) != KeptVersions+1 {
		t.Errorf("kept: got %d fields, %v, want %d", len(st.Fields), err, KeptVersions+1)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	load := func(lines ...string) *rule.Snapshot {
		text := "domain: shop\ndescriptors:\n  - " + strings.Join(lines, "\n  - ")
		s, _, err := rule.Load([]rule.File{{Name: "r.yaml", Data: []byte(text)}}, rule.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := load(
		"{key: a, rate_limit: {name: same, unit: hour, requests_per_unit: 1}}",
		"{key: b, rate_limit: {name: raised, unit: hour, requests_per_unit: 10, burst: 5}}",
		"{key: c, rate_limit: {name: moved, unit: hour, requests_per_unit: 1}}",
		"{key: d, rate_limit: {unlimited: true}}",
	)
	after := load(
		"{key: a, rate_limit: {name: same, unit: hour, requests_per_unit: 1}}",
		"{key: b, shadow_mode: true, rate_limit: {name: raised, unit: hour, requests_per_unit: 20}}",
		"{key: c2, rate_limit: {name: moved, unit: hour, requests_per_unit: 1}}",
		"{key: e, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 1}}",
	)
	var got []string
	for _, d := range Diff(before, after) {
		got = append(got, d.String())
	}
	want := []string{
		"- shop.d: unlimited",
		"+ shop.e: 1/5minute token_bucket fail_open",
		"~ shop.moved: 1/hour token_bucket fail_open -> 1/hour token_bucket fail_open, its buckets start afresh",
		"~ shop.raised: 10/hour token_bucket burst 5 fail_open -> 20/hour token_bucket fail_open shadow",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// processVar makes the tests below parts of TestChurn: "publish ADDR" or "follow ADDR STATE-DIR".
const processVar = "RATELIMITD_TEST_PUBLISHED"

const churnBad = 20 // every so many versions one is bad

// TestProcess is a process of TestChurn; on its own it does nothing.
func TestProcess(t *testing.T) {
	words := strings.Fields(os.Getenv(processVar))
	if len(words) == 0 {
		return
	}
	c := redis.NewClient(&redis.Options{Addr: words[1], MaxRetries: -1})
	defer c.Close()
	l := ledger.NewRedis(c, ledger.Options{Node: words[0], Poll: time.Second})
	var err error
	if words[0] == "publish" {
		err = publishAll(t.Context(), l)
	} else {
		err = followAll(t.Context(), l, words[2])
	}
	if err != nil {
		t.Fatal(err)
	}
}

// publishAll publishes version after version, and says each.
func publishAll(ctx context.Context, l *ledger.Ledger) error {
	p := NewPublished(l, Options{})
	for {
		current := &Version{}
		if v, _, err := p.Files(ctx, 0); err == nil {
			current = v
		} else if !errors.Is(err, ErrNotPublished) {
			return err
		}
		n := current.Number + 1
		if n > churnVersions {
			fmt.Println("done 0")
			return nil
		}
		files := rulesOf(n)
		if n%churnBad == 0 {
			// Publish would not take it: as if another version of the service, with another idea of rules, had.
			files[0].Data = []byte(bad)
		}
		text, err := json.Marshal(files)
		if err != nil {
			return err
		}
		v, err := p.commit(ctx, by(current.Number), "rules.published", func(ledger.State) (*Version, string, error) {
			return &Version{Hash: "of " + strconv.FormatInt(n, 10), Blob: ledger.Digest(string(text))}, string(text), nil
		})
		if err != nil {
			return err
		}
		fmt.Println("published", v.Number)
	}
}

// followAll keeps the rules current, and says of each version what became of it, while it looks a rule up all the time.
func followAll(ctx context.Context, l *ledger.Ledger, dir string) error {
	var live *Live
	live, err := New(Options{StateDir: dir, Logger: slog.New(slog.DiscardHandler), Changed: func(c Change) {
		if c.Err != nil {
			fmt.Println("refused", stdcmp.Or(c.Version, "0"))
			return
		}
		fmt.Println("current", c.Version, live.Current().Domain("shop").Rules()[0].Limits[0].Requests)
	}})
	if err != nil {
		return err
	}
	_ = live.Restore() // of the first process there is nothing
	go l.Follow(ctx)
	go func() {
		<-live.Ready()
		for ctx.Err() == nil {
			if r := live.Current().Domain("shop").Match([]rule.Entry{{Key: "api", Value: "x"}}); len(r.Limits) != 1 {
				fmt.Println("lost 0")
			}
		}
	}()
	return live.Run(ctx, NewPublished(l, Options{Logger: slog.New(slog.DiscardHandler)}))
}

// A thousand versions, one in twenty of them bad, whoever publishes and whoever follows killed at random: no version
// is lost or made twice, none is followed out of order or in part, and the audit log is whole.
func TestChurn(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	dir := t.TempDir()
	var mu sync.Mutex // of rnd
	random := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
	// process runs one until it has said so many lines, then kills it; say hears each, and ends it by false.
	process := func(what string, lines int, say func(verb string, n int64, rest string) bool) (more bool) {
		cmd := exec.Command(exe, "-test.run=^TestProcess$")
		cmd.Env = append(os.Environ(), processVar+"="+what)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Error(err)
			return false
		}
		more = true
		in := bufio.NewScanner(out)
		for more && lines > 0 && in.Scan() {
			lines--
			words := strings.SplitN(in.Text()+" ", " ", 3)
			n, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				t.Errorf("%s said %q", what, in.Text())
				more = false
				break
			}
			more = say(words[0], n, strings.TrimSpace(words[2]))
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return more && !t.Failed()
	}

	var wg sync.WaitGroup
	wg.Go(func() {
		last := int64(0)
		for process("publish "+server.Addr, 50+random(400), func(verb string, n int64, _ string) bool {
			if verb == "published" && n <= last {
				t.Errorf("version %d published after %d", n, last)
			}
			last = n
			return verb == "published"
		}) {
		}
	})
	wg.Go(func() {
		last := int64(0)
		for process("follow "+server.Addr+" "+dir, 30+random(300), func(verb string, n int64, rest string) bool {
			switch {
			case verb == "current" && rest != strconv.FormatInt(n, 10):
				t.Errorf("version %d: limit %s", n, rest)
			case verb == "current" && n%churnBad == 0, verb == "refused" && n%churnBad != 0 && n != 0, verb == "lost":
				t.Errorf("%s %d", verb, n)
			case n < last && n != 0:
				t.Errorf("%s %d after %d", verb, n, last)
			}
			last = max(last, n)
			return last < churnVersions
		}) {
		}
		if last != churnVersions {
			t.Errorf("followed up to %d, want %d", last, churnVersions)
		}
	})
	wg.Wait()

	l := ledger.NewRedis(server.Client(), ledger.Options{})
	v, err := l.Verify(t.Context())
	if err != nil || v.Entries != churnVersions {
		t.Fatalf("audit log: got %+v, %v, want %d entries", v, err, churnVersions)
	}
	live, err := New(Options{StateDir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := live.Restore(); err != nil || live.Status().OriginVersion != strconv.Itoa(churnVersions) {
		t.Errorf("kept: got version %q, %v, want the last one, %d", live.Status().OriginVersion, err, churnVersions)
	}
}
