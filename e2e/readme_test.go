package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A newcomer types what README.md shows and must see what it shows. The service runs on what `make run` runs it on, but
// for its ports, and the program is the one that these tests built.
func TestREADME(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	sessions := consoleSessions(string(text))
	if len(sessions) < 2 {
		t.Fatalf("got %d commands with their output in README.md, want at least one by curl and one by gRPC", len(sessions))
	}
	s := servePath(t, filepath.Join("..", rulesOfMakeRun(t)))
	here := strings.NewReplacer("localhost:8080", s.http, "localhost:8081", s.grpc, "bin/ratelimitd", program)
	for _, session := range sessions {
		shell := exec.Command("bash", "-c", here.Replace(session.command))
		var stderr strings.Builder
		shell.Stderr = &stderr
		out, err := shell.Output()
		if err != nil {
			t.Errorf("%s: %v: %s", session.command, err, stderr.String())
		}
		if diff := cmp.Diff(session.output, string(out)); diff != "" {
			t.Errorf("%s (-README.md +got):\n%s", session.command, diff)
		}
	}
}

type consoleSession struct{ command, output string }

// consoleSessions returns the commands of the blocks that are marked as console, each with what it prints.
func consoleSessions(markdown string) []consoleSession {
	var sessions []consoleSession
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(markdown, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				sessions = append(sessions, consoleSession{command: strings.TrimSuffix(command, "\n")})
			} else if len(sessions) > 0 {
				sessions[len(sessions)-1].output += line
			}
		}
	}
	return sessions
}

// rulesOfMakeRun returns what `make run` serves.
func rulesOfMakeRun(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("make", "-C", "..", "--no-print-directory", "-n", "run").CombinedOutput()
	if err != nil {
		t.Fatalf("make -n run: %v: %s", err, out)
	}
	match := regexp.MustCompile(`(?m)^bin/ratelimitd serve --rules (\S+)$`).FindSubmatch(out)
	if match == nil {
		t.Fatalf("make run does %q, want it to build and serve rules and nothing else", out)
	}
	return string(match[1])
}

// What README.md and docs/migrate.md claim they claim by the name of a test, which must be there.
func TestREADMENamesTests(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"../README.md", "../docs/migrate.md"} {
		namesTests(t, page)
	}
}

func namesTests(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	claims := regexp.MustCompile("`([a-z0-9/]+)` ((?:`Test\\w+`(?:, )?)+)").FindAllStringSubmatch(string(text), -1)
	if len(claims) < 10 {
		t.Fatalf("got %d claims with tests in %s, want all of the tables'", len(claims), page)
	}
	for _, claim := range claims {
		dir := filepath.Join("..", claim[1])
		if _, err := os.Stat(dir); err != nil {
			dir = filepath.Join("..", "internal", claim[1])
		}
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no tests (%v)", dir, err)
		}
		var source strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(text)
		}
		for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(claim[2], -1) {
			if !strings.Contains(source.String(), "\nfunc "+name+"(t *testing.T)") {
				t.Errorf("%s: %s names %s, which is not there", dir, page, name)
			}
		}
	}
}
