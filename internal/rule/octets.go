package rule

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// stray finds the first byte or character that YAML text may not hold, and says what is wrong with it; "" if there is none. The YAML parser finds it too, but
// does not know the line.
func stray(data []byte) (at mark, msg string) {
	at = mark{1, 1}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return at, "" // UTF-16, which the parser reads
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && n == 1:
			return at, fmt.Sprintf("byte 0x%02x is not UTF-8: want text in UTF-8", data[0])
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == '\ufffe', r == '\uffff':
			return at, fmt.Sprintf("control character %U: want none; in double quotes it is written as an escape", r)
		case r == '\n', r == '\r' && !bytes.HasPrefix(data, []byte("\r\n")):
			at = mark{at.line + 1, 1}
		default:
			at.col++
		}
		data = data[n:]
	}
	return at, ""
}
