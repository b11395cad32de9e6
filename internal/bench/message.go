package bench

import (
	"bytes"
	"errors"
)

// Mark stands in a message for the key, once or several times: ten bytes that no other text contains, which every request
// overwrites with ten digits. It is valid UTF-8.
const Mark = "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19"

// Message is an encoded RateLimitRequest in which the key is to be filled in. Made by NewMessage; safe for concurrent use.
type Message struct {
	text  []byte // with the five bytes that gRPC puts before a message
	marks []int  // where the key's digits go
}

// NewMessage returns the message that the bytes of a RateLimitRequest make; they may hold Mark. It keeps no reference to
// them. The error says that the request is longer than a frame.
func NewMessage(request []byte) (Message, error) {
	if len(request)+5 > maxFrame {
		return Message{}, errors.New("request of more than 16 KiB")
	}
	m := Message{text: append([]byte{0, 0, 0, byte(len(request) >> 8), byte(len(request))}, request...)}
	for at := 0; ; at += len(Mark) {
		i := bytes.Index(m.text[at:], []byte(Mark))
		if i < 0 {
			return m, nil
		}
		at += i
		m.marks = append(m.marks, at)
	}
}

// append appends the message for a key.
func (m *Message) append(b []byte, key uint64) []byte {
	start := len(b)
	b = append(b, m.text...)
	if len(m.marks) == 0 {
		return b
	}
	var digits [len(Mark)]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = '0' + byte(key%10)
		key /= 10
	}
	for _, at := range m.marks {
		copy(b[start+at:], digits[:])
	}
	return b
}
