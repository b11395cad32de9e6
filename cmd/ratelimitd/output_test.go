package main

import (
	"strings"
	"testing"
)

// What somebody else wrote moves no cursor.
func TestColumnsArePrintable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	columns(&b, [][]string{{"a\x1b[2J", "two words", "é\nx"}, {"\xff\x00", "\u200b\ufffd", "\a'\\"}})
	if want := `a\x1b[2J  two words  é\nx` + "\n" + `\xff\x00  \u200b�    \a'\` + "\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
