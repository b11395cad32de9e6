package rule

import (
	"errors"
	"io"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

func TestStrayByteHasItsPlace(t *testing.T) {
	t.Parallel()
	tests := []struct {
		data string
		want mark
		msg  string
	}{
		{"", mark{1, 1}, ""},
		{"a: é\n", mark{2, 1}, ""},
		{"\xff", mark{1, 1}, "byte 0xff"},
		{"\ufeff\xff", mark{1, 1}, "byte 0xff"},
		{"éé\xc3", mark{1, 3}, "byte 0xc3"},
		{"a\nb\r\nc\rd\x00", mark{4, 2}, "U+0000"},
		{"a\x1b\x00", mark{1, 2}, "U+001B"},
		{"a\n\xed\xa0\x80", mark{2, 1}, "byte 0xed"}, // half of a surrogate pair
		{"a: \ufffd\n\uffff", mark{2, 1}, "U+FFFF"},
	}
	for _, test := range tests {
		at, msg := stray([]byte(test.data))
		if at != test.want || !strings.Contains(msg, test.msg) || (msg == "") != (test.msg == "") {
			t.Errorf("%q: got %v %q, want %v %q", test.data, at, msg, test.want, test.msg)
		}
	}
}

// What is refused is what the parser would refuse, no more and no less.
func TestStrayAgreesWithParser(t *testing.T) {
	t.Parallel()
	check := func(data string) {
		var doc yaml.Node
		l, err := yaml.NewLoader(strings.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		err = l.Load(&doc)
		if errors.Is(err, io.EOF) {
			err = nil // a comment alone
		}
		if _, msg := stray([]byte(data)); (msg == "") != (err == nil) {
			t.Errorf("%q: got %q, the parser says %v", data, msg, err)
		}
	}
	for r := range rune(0x10000) {
		if r != '\n' && r != '\r' { // which end the comment
			check("# " + string(r))
		}
	}
	for first := 0x80; first <= 0xff; first++ {
		for second := 0x70; second <= 0xff; second++ {
			check("# " + string([]byte{byte(first), byte(second)}))
			check("# " + string([]byte{byte(first), byte(second), 0x80}))
			check("# " + string([]byte{byte(first), byte(second), 0x80, 0x80}))
		}
	}
}
