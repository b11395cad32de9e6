package transport

import (
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// appendPolicy appends what a RateLimit-Policy header says of the limit of s, whatever remains of it: a list of one String
// with parameters (RFC 9651, section 3.1), such as "login";q=5;w=60.
func appendPolicy(b []byte, s *engine.Status) []byte {
	b = append(appendName(b, s), ";q="...)
	b = strconv.AppendInt(b, max(s.Quota, 0), 10)
	if s.Window >= time.Second { // the draft has no fractions of a second
		b = append(b, ";w="...)
		b = strconv.AppendInt(b, ceilSeconds(s.Window), 10)
	}
	return b
}

// appendLegacyPolicy appends what an X-RateLimit-Limit header of LegacyEnvoy says: 5, 5;w=60;name="login".
func appendLegacyPolicy(b []byte, s *engine.Status) []byte {
	b = strconv.AppendUint(b, uint64(s.Requests), 10)
	b = append(b, ", "...)
	b = strconv.AppendUint(b, uint64(s.Requests), 10)
	b = append(b, ";w="...)
	b = strconv.AppendInt(b, int64(periodOf(s.Unit, s.Multiplier)/time.Second), 10)
	return appendName(append(b, ";name="...), s)
}

// limitLabel names a limit to people: its own name, else where it is configured.
func limitLabel(s *engine.Status) string {
	if s.Name != "" {
		return s.Name
	}
	return rulePath(s)
}

// rulePath returns the configured path below the domain. It holds no value of a request unless the request brought its own
// limit and no rule matched.
func rulePath(s *engine.Status) string {
	if s.Rule != nil {
		return s.Rule.Path
	}
	return s.Path
}

// maxPolicyName bounds the bytes of a name in a header or a body.
const maxPolicyName = 64

// appendName appends what the limit of s is called in headers and bodies, in quotes: printable ASCII, at most
// maxPolicyName bytes, not empty. A String of RFC 9651 (section 4.1.6) and one of JSON write that alike.
func appendName(b []byte, s *engine.Status) []byte {
	label := limitLabel(s)
	if label == "" {
		label = "default"
	}
	label = label[:min(len(label), maxPolicyName)]
	b = append(b, '"')
	done := 0 // bytes of label; what needs no change is appended at once
	for i := range len(label) {
		c := label[i]
		if c >= ' ' && c <= '~' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, label[done:i]...)
		if c < ' ' || c > '~' {
			b = append(b, '_')
		} else {
			b = append(b, '\\', c)
		}
		done = i + 1
	}
	return append(append(b, label[done:]...), '"')
}

// printable returns the first limit bytes of s, those that are not printable ASCII replaced.
func printable(s string, limit int) string {
	b := []byte(s[:min(len(s), limit)])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '_'
		}
	}
	return string(b)
}

// periodOf returns the length of a limit's period as rules write it.
func periodOf(u bucket.Unit, multiplier uint32) time.Duration {
	return u.Duration() * time.Duration(max(multiplier, 1))
}
