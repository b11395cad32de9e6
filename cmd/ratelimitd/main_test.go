package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

var rewrite = flag.Bool("rewrite", false, "write the help pages and the scripts' expected outputs anew")

// TestMain lets the test binary stand in for ratelimitd, so that scripts and tests run real processes.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ratelimitd": main, "ratelimit": main})
}

// The command line, told by testdata/script/*.txt.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       *rewrite,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values[testKey{}] = env.T()
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"freeport": freeport,
			"ready":    ready,
			"redis":    redis,
			"says":     says,
			"signal":   signalProcess,
		},
	})
}

// testKey is where a script keeps the test that runs it.
type testKey struct{}

// exits CODE COMMAND… runs a command and wants its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG…]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		if exit, ok := err.(interface{ ExitCode() int }); ok {
			got = exit.ExitCode()
		} else {
			ts.Fatalf("%v", err)
		}
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("%s: got exit code %d, want %s", strings.Join(args[1:], " "), got, args[0])
	}
}

// freeport NAME… sets each variable to an address that nobody listens on.
func freeport(ts *testscript.TestScript, _ bool, args []string) {
	var taken []net.Listener
	for _, name := range args {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		taken = append(taken, ln) // all at once, so that no two are the same
		ts.Setenv(name, ln.Addr().String())
	}
	for _, ln := range taken {
		ts.Check(ln.Close())
	}
}

// ready ADDRESS waits until a process in the background serves HTTP there.
func ready(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, func() error {
		resp, err := http.Get("http://" + args[0] + "/readyz")
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", resp.Status)
		}
		return nil
	})
}

// says URL TEXT waits until the page has the text.
func says(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, func() error {
		resp, err := http.Get(args[0])
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(body), args[1]) {
			err = fmt.Errorf("%s does not say %q:\n%s", args[0], args[1], body)
		}
		return err
	})
}

// patience bounds every wait for another process; long, since a loaded machine is no failure.
const patience = 20 * time.Second

// poll waits until try succeeds.
func poll(ts *testscript.TestScript, try func() error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("not within %v: %v", patience, err)
		}
	}
}

// redis NAME [ARG…] starts a Redis for the script and sets the variable to its address.
func redis(ts *testscript.TestScript, _ bool, args []string) {
	// What runs a script is a *testing.T in a wrapper.
	t, ok := ts.Value(testKey{}).(testing.TB)
	if !ok {
		ts.Fatalf("redis: the script runs in a %T", ts.Value(testKey{}))
	}
	ts.Setenv(args[0], redistest.Start(t, args[1:]...).Addr)
}

// signal NAME sends HUP, INT or TERM to the process started last.
func signalProcess(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]os.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "TERM": syscall.SIGTERM}
	cmds := ts.BackgroundCmds()
	if len(args) != 1 || signals[args[0]] == nil || len(cmds) == 0 {
		ts.Fatalf("usage: signal HUP|INT|TERM, with a process in the background")
	}
	ts.Check(cmds[len(cmds)-1].Process.Signal(signals[args[0]]))
}

// Every help page is in testdata/help, as people see it; -rewrite writes them.
func TestHelp(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".txt"
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			var out, talk strings.Builder
			args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
			if code := run(args, &out, &talk); code != exitOK || talk.Len() > 0 {
				t.Errorf("got exit code %d and %q on standard error, want 0 and nothing", code, talk.String())
			}
			golden := filepath.Join("testdata", "help", name)
			if *rewrite {
				if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != string(want) {
				t.Errorf("the help page has changed; if it is meant, run the test with -rewrite:\n%s", got)
			}
			if cmd.Short == "" || cmd.Long == "" || (!strings.HasPrefix(cmd.CommandPath(), "ratelimitd completion") && cmd.Example == "") {
				t.Error("a command wants a short and a long description and an example")
			}
		})
		for _, c := range cmd.Commands() {
			if c.Name() != "help" {
				walk(c)
			}
		}
	}
	root := newRoot()
	root.InitDefaultCompletionCmd()
	walk(root)
	pages, err := os.ReadDir(filepath.Join("testdata", "help"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if !seen[page.Name()] {
			t.Errorf("testdata/help/%s is of no command", page.Name())
		}
	}
}
