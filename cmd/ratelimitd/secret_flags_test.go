package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Wherever a value that may be a secret stands, and whatever is wrong with it, what is said of it does not hold it.
func TestBadSecretIsNotShown(t *testing.T) {
	t.Parallel()
	const canary = "hunter2-canary"
	bad := `authorization="` + canary // quotes where the list has none
	for _, flag := range []string{"xds-header", "xds-node-metadata"} {
		for _, tt := range []struct {
			from string
			args []string
			env  map[string]string
			want string
		}{
			{"command line", []string{"--" + flag, bad}, nil, "--" + flag},
			{"command line, in one", []string{"--" + flag + "=" + bad}, nil, "--" + flag},
			{"environment", nil, map[string]string{variable(flag): bad}, variable(flag)},
			{"file", []string{"--config", fileWith(t, flag+": '"+bad+"'\n")}, nil, ": " + flag + ": "},
		} {
			root := newRoot()
			serve, _, err := root.Find([]string{"serve"})
			if err != nil {
				t.Fatal(err)
			}
			serve.RunE = func(cmd *cobra.Command, _ []string) error {
				return completeSettings(cmd, func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok }, nil)
			}
			root.SetArgs(append([]string{"serve"}, tt.args...))
			err = root.Execute()
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), canary) {
				t.Errorf("%s of --%s: got error %v, want one that names it and does not show it", tt.from, flag, err)
			}
		}
	}
}

// A value that is no secret is shown: it is the quickest way to find it.
func TestBadValueIsShown(t *testing.T) {
	t.Parallel()
	var out, said strings.Builder
	if code := run([]string{"serve", "--drain-delay", "soon"}, &out, &said); code != exitUsage || !strings.Contains(said.String(), `"soon"`) {
		t.Errorf("got exit %d and %q, want 2 and the value", code, said.String())
	}
}
