package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cases"
)

func testCommand() *cobra.Command {
	var f rulesFlags
	var out output
	cmd := &cobra.Command{
		Use:   "test RULES CASES…",
		Short: "Run unit tests of limits",
		Long: `Run cases against rules: requests at given times, and the answers expected of them.
Time is virtual, so a case of a month takes no longer than one of a second. Every
case starts from empty buckets.

A file of cases is YAML:

  start: 2026-01-31T23:59:30Z         # when each case begins; default 2026-01-01T00:00:00Z
  cases:
    - name: a burst, then the rate
      steps:
        - ask: shop | [tier=free, user=u1] | hits=10
          want: OK {OK r0}            # the overall code, and each descriptor's code and remaining
        - ask: shop | [tier=free, user=u1]
          want: OVER                  # leave out what does not matter: OVER, {r0}, {OK}, {none}
          wait: 1s                    # the exact wait until it would pass, or never
          limit: free-minute          # the name of the limit that refused it
        - at: 3s                      # time since the case began; default the step before
          ask: shop | [tier=free, user=u1]
          times: 3                    # ask so often; each answer must be as wanted
          want: OK

Behind a descriptor may stand its own hits (h5; h0 looks without spending; h-5 gives
back) and a limit of its own (L10/minute).

A step that is not answered as wanted is printed as file:line: got …, want …, and the
command ends with 1.`,
		Example: `  ratelimitd test examples/rules cases.yaml
  ratelimitd test rules.yaml tests/*.yaml -o json`,
		Args: cobra.MinimumNArgs(2),
		RunE: runs(func(cmd *cobra.Command, args []string) error {
			f.rules = args[0]
			return test(cmd, &f, args[1:], &out)
		}),
	}
	f.addProfileTo(cmd)
	out.addTo(cmd)
	return cmd
}

func test(cmd *cobra.Command, f *rulesFlags, files []string, out *output) error {
	snapshot, err := f.load(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	results := []cases.Result{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		set, err := cases.Parse(file, data)
		if err != nil {
			writeLines(cmd.ErrOrStderr(), err.Error()) // file:line: first, as findings in rules are
			return &exitError{code: exitFailure}
		}
		r, err := set.Run(cmd.Context(), snapshot)
		if err != nil {
			return err
		}
		results = append(results, r...)
	}
	failed := 0
	for _, r := range results {
		if len(r.Failures) > 0 {
			failed++
		}
	}
	err = out.print(cmd.OutOrStdout(), results, func(w io.Writer) {
		for _, r := range results {
			for _, failure := range r.Failures {
				writeLine(w, "%s", failure)
			}
		}
	})
	if err != nil {
		return err
	}
	word := "cases"
	if len(results) == 1 {
		word = "case"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d %s, %d failed\n", len(results), word, failed)
	if failed > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}
