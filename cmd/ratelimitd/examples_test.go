package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every example of a help page is a command line that its command takes: its flags are there, their values have the right
// form, and there are as many arguments as it wants.
func TestExamplesAreCommandLines(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, args := range exampleArgs(t, cmd.Example) {
			if err := takes(args); err != nil {
				t.Errorf("%s --help shows ratelimitd %q: %v", cmd.CommandPath(), args, err)
			}
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot())
}

// exampleArgs returns what a shell that runs the text would give to ratelimitd, a list for each call.
func exampleArgs(t *testing.T, text string) (calls [][]string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "calls")
	// Whatever else an example runs has nothing to say.
	const shell = `
ratelimitd() { printf '%s\0' "$@" >>"$OUT"; echo >>"$OUT"; }
jq() { cat >/dev/null; }
redis-cli() { :; }
pgrep() { echo 1; }
`
	cmd := exec.Command("bash", "-euc", shell+text)
	cmd.Env = append(os.Environ(), "OUT="+out)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v: %s", text, err, said)
	}
	data, err := os.ReadFile(out)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		calls = append(calls, strings.Split(strings.TrimSuffix(line, "\x00\n"), "\x00"))
	}
	return calls
}

// takes returns why a command line is wrong before anything is done.
func takes(args []string) error {
	cmd, rest, err := newRoot().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
