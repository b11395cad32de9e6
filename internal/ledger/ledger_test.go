package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// childVar makes the test binary a process that makes changes until it is killed: "file DIR" or "redis ADDR".
const childVar = "RATELIMITD_TEST_LEDGER"

func TestMain(m *testing.M) {
	if where := os.Getenv(childVar); where != "" {
		if err := child(where); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// child counts in the ledger, and says each number once it is kept.
func child(where string) error {
	kind, at, _ := strings.Cut(where, " ")
	var l *Ledger
	if kind == "file" {
		var err error
		if l, err = OpenFile(at, Options{}); err != nil {
			return err
		}
	} else {
		l = NewRedis(redis.NewClient(&redis.Options{Addr: at, MaxRetries: -1}), Options{})
	}
	for {
		e, err := l.Commit(context.Background(), count)
		if err != nil {
			return err
		}
		fmt.Println(e.Seq)
	}
}

// count adds one to the field "n".
func count(st State) (*Change, error) {
	n, _ := strconv.Atoi(st.Fields["n"])
	return &Change{
		Who: "ann", What: "count", On: "n", Why: "a test \"of\" <counting>\xff", Before: st.Fields["n"], After: strconv.Itoa(n + 1),
		Set: map[string]string{"n": strconv.Itoa(n + 1), "odd": strings.Repeat("1", (n+1)%2)},
	}, nil
}

// each runs a test on both kinds of ledger; again returns another on the same store, as another process has it, or
// after the first was closed.
func each(t *testing.T, test func(t *testing.T, l *Ledger, again func() *Ledger)) {
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		var open *Ledger
		again := func() *Ledger {
			if open != nil {
				open.Close()
			}
			var err error
			if open, err = OpenFile(dir, Options{Node: "node-1"}); err != nil {
				t.Fatal(err)
			}
			return open
		}
		t.Cleanup(func() { open.Close() })
		test(t, again(), again)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		c := redistest.Start(t).Client()
		again := func() *Ledger { return NewRedis(c, Options{Node: "node-1"}) }
		test(t, again(), again)
	})
}

func TestCommit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Ledger, again func() *Ledger) {
		ctx := t.Context()
		for range 3 {
			if _, err := l.Commit(ctx, count); err != nil {
				t.Fatal(err)
			}
		}
		no := errors.New("no")
		if _, err := l.Commit(ctx, func(State) (*Change, error) { return nil, no }); !errors.Is(err, no) {
			t.Errorf("refused change: got %v, want %v", err, no)
		}
		l = again()
		st, err := l.State(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"n": "3", "odd": "1"}, st.Fields); diff != "" || st.Seq != 3 {
			t.Errorf("state after 3 changes, seq %d (-want +got):\n%s", st.Seq, diff)
		}
		entries, err := l.Last(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, strings.Join([]string{strconv.FormatInt(e.Seq, 10), e.Node, e.Who, e.What, e.On, e.Before, e.After}, " "))
		}
		if diff := cmp.Diff([]string{"2 node-1 ann count n 1 2", "3 node-1 ann count n 2 3"}, got); diff != "" {
			t.Errorf("last entries (-want +got):\n%s", diff)
		}
		v, err := l.Verify(ctx)
		if diff := cmp.Diff(&Verified{First: 1, Last: 3, Entries: 3, Hash: st.Hash}, v); err != nil || diff != "" {
			t.Errorf("verify: %v (-want +got):\n%s", err, diff)
		}
	})
}

// No change is made on a state that its maker has not seen.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Ledger, _ func() *Ledger) {
		const makers, changes = 4, 10
		var wg sync.WaitGroup
		for range makers {
			wg.Go(func() {
				for range changes {
					for {
						_, err := l.Commit(t.Context(), count)
						if err == nil {
							break
						}
						if !errors.Is(err, ErrConflict) {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		st, err := l.State(t.Context())
		if want := strconv.Itoa(makers * changes); err != nil || st.Fields["n"] != want {
			t.Errorf("count: got %q, %v, want %s", st.Fields["n"], err, want)
		}
		if _, err := l.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A process that is killed leaves every change it was told was made, and no half of one.
func TestKilled(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	server := redistest.Start(t)
	for kind, where := range map[string]string{"file": "file " + dir, "redis": "redis " + server.Addr} {
		t.Run(kind, func(t *testing.T) {
			told := int64(0)
			for round := range 6 {
				cmd := exec.Command(exe)
				cmd.Env = append(os.Environ(), childVar+"="+where)
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(out)
				// The kill comes while the child is in the middle of whatever it does next.
				for n := 0; n < 10+7*round && lines.Scan(); n++ {
					told, _ = strconv.ParseInt(lines.Text(), 10, 64)
				}
				_ = cmd.Process.Kill()
				for lines.Scan() { // what it said before it died
					if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
						told = n
					}
				}
				_ = cmd.Wait()
				var l *Ledger
				if kind == "file" {
					if l, err = OpenFile(dir, Options{}); err != nil {
						t.Fatal(err)
					}
				} else {
					l = NewRedis(server.Client(), Options{})
				}
				v, err := l.Verify(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if v.Last < told || told == 0 {
					t.Errorf("round %d: entries up to %d, want those up to %d, which were told", round, v.Last, told)
				}
				st, err := l.State(t.Context())
				if err != nil || st.Fields["n"] != strconv.FormatInt(v.Last, 10) {
					t.Errorf("round %d: state %v, %v after entry %d", round, st.Fields, err, v.Last)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	for name, follow := range map[string]bool{"told": true, "by looking": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			poll := time.Hour
			if !follow {
				poll = 20 * time.Millisecond
			}
			here, there := NewRedis(c, Options{Poll: poll}), NewRedis(c, Options{})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			if follow {
				wg.Go(func() { here.Follow(ctx) })
			}
			states := make(chan State, 100)
			wg.Go(func() { here.Watch(ctx, func(st State) { states <- st }, func(err error) { t.Error(err) }) })
			<-states
			e, err := there.Commit(ctx, count)
			if err != nil {
				t.Fatal(err)
			}
			late := time.After(10 * time.Second)
			for {
				select {
				case st := <-states:
					if st.Seq >= e.Seq {
						return
					}
				case <-late:
					t.Fatalf("change %d was not seen", e.Seq)
				}
			}
		})
	}
}

// flaky is a backend whose state cannot be read while it is away.
type flaky struct {
	backend
	away atomic.Bool
}

func (f *flaky) state(context.Context) (State, error) {
	if f.away.Load() {
		return State{}, ErrUnavailable
	}
	return State{}, nil
}

// Every outage is told of once, also one behind another with no change between them.
func TestWatchTellsOfEveryOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := new(flaky)
		ctx, cancel := context.WithCancel(t.Context())
		var told atomic.Int32
		states, ended := newLedger(b, Options{Poll: time.Second}).States(ctx, func(error) { told.Add(1) })
		for range 3 {
			b.away.Store(true)
			time.Sleep(10 * time.Second)
			b.away.Store(false)
			select {
			case <-states:
			case <-time.After(10 * time.Second):
			}
		}
		if got := told.Load(); got != 3 {
			t.Errorf("got %d outages told of, want 3", got)
		}
		cancel()
		ended()
	})
}

func TestOneProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := OpenFile(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if other, err := OpenFile(dir, Options{}); err == nil {
		other.Close()
		t.Error("a second one opened the same file")
	}
}
