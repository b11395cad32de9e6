package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
)

// output is how a command prints its data.
type output struct{ format string }

// addTo gives cmd the flag -o.
func (o *output) addTo(cmd *cobra.Command) {
	o.format = "table"
	cmd.Flags().VarP(&choice{&o.format, []string{"table", "json", "yaml"}}, "output", "o", "print as table, json or yaml")
}

// print writes v as JSON or YAML, with the names of its json tags in both, or calls table for people.
func (o *output) print(w io.Writer, v any, table func(io.Writer)) error {
	switch o.format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	case "yaml":
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		// JSON is YAML: read as such it keeps names and their order, and block style makes it readable.
		var doc yaml.Node
		if err := yaml.Unmarshal(data, &doc); err != nil {
			return err
		}
		blockStyle(&doc)
		out, err := yaml.Marshal(&doc)
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	}
	table(w)
	return nil
}

func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// columns writes lines of cells with aligned columns.
func columns(w io.Writer, lines [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		for i, cell := range line {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, printable(cell))
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
}

// writeLine writes one line for people.
func writeLine(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, printable(fmt.Sprintf(format, args...)))
}

// writeLines writes text for people, which has several.
func writeLines(w io.Writer, text string) {
	for l := range strings.SplitSeq(text, "\n") {
		writeLine(w, "%s", l)
	}
}

// printable returns s with what would move a terminal's cursor written as in Go, \x1b: it may hold what somebody else wrote.
func printable(s string) string {
	var b strings.Builder
	for i, r := range s {
		_, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
