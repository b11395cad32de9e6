package transport

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// appendHeaders appends the headers that tell of the limit nearest to its edge, which is never a shadow rule's: those of
// the chosen families, and Retry-After on a denial. There are none where no limit applies.
func (a *answerer) appendHeaders(b []byte, c *call, now time.Time) []byte {
	s := deciding(&c.verdict)
	if s == nil {
		return b
	}
	if c.verdict.Envoy {
		return a.appendReference(b, s)
	}
	if a.headers.IETF {
		b = appendRateLimit(b, s)
	}
	switch a.headers.Legacy {
	case LegacyOff:
	case LegacyEnvoy:
		var m mark
		b, m = headerLegacyLimit.open(b)
		b = appendLegacyPolicy(b, s)
		b = headerLegacyLimit.close(b, m)
		b = headerLegacyRemaining.appendNumber(b, int64(s.Remaining))
		b = headerLegacyReset.appendNumber(b, resetSeconds(s))
	case LegacyGitHub:
		b = headerLegacyLimit.appendNumber(b, int64(s.Requests))
		b = headerLegacyRemaining.appendNumber(b, int64(s.Remaining))
		b = headerLegacyReset.appendNumber(b, now.Unix()+resetSeconds(s))
	}
	if c.verdict.Over {
		if seconds, ok := a.retryAfter(c, s, now); ok {
			b = headerRetryAfter.appendNumber(b, seconds)
		}
	}
	return b
}

// appendReference appends the reference service's three headers, in its order.
func (a *answerer) appendReference(b []byte, s *engine.Status) []byte {
	if !a.headers.Reference {
		return b
	}
	b = a.referenceLimit.appendNumber(b, int64(s.Requests))
	b = a.referenceRemaining.appendNumber(b, int64(s.Remaining))
	return a.referenceReset.appendNumber(b, resetSeconds(s))
}

// appendRateLimit appends the two fields of draft-ietf-httpapi-ratelimit-headers-11 (23 May 2026). It is a draft: its
// syntax is written here and in policy.go only.
func appendRateLimit(b []byte, s *engine.Status) []byte {
	b, m := headerPolicy.open(b)
	b = appendPolicy(b, s)
	b = headerPolicy.close(b, m)
	b, m = headerRateLimit.open(b)
	b = append(appendName(b, s), ";r="...)
	b = strconv.AppendUint(b, uint64(s.Remaining), 10)
	if t := resetSeconds(s); t > 0 { // nothing comes back to a full bucket, nor to one that never refills
		b = append(b, ";t="...)
		b = strconv.AppendInt(b, t, 10)
	}
	return headerRateLimit.close(b, m)
}

// resetSeconds returns the wait of a refused status, else the time until it is full or its window ends, in whole seconds
// rounded up; 0 if no wait helps.
func resetSeconds(s *engine.Status) int64 {
	d := s.Reset
	if s.Over {
		d = s.RetryAfter
	}
	return ceilSeconds(max(d, 0))
}

// header is an envoy.config.core.v3.HeaderValue among the headers of a response, encoded up to its value: what of it is
// the same in every answer. Two bytes of it are the lengths, still open.
type header string

var (
	headerPolicy          = newHeader("RateLimit-Policy")
	headerRateLimit       = newHeader("RateLimit")
	headerLegacyLimit     = newHeader("X-RateLimit-Limit")
	headerLegacyRemaining = newHeader("X-RateLimit-Remaining")
	headerLegacyReset     = newHeader("X-RateLimit-Reset")
	headerRetryAfter      = newHeader("Retry-After")
	headerContentType     = newHeader("content-type")
)

func newHeader(name string) header {
	b, _ := openMessage(nil, responseHeadersToAdd)
	b = protowire.AppendString(appendTag(b, headerKey, protowire.BytesType), name)
	b, _ = openMessage(b, headerValue)
	return header(b)
}

// open begins the header, whose value is what is appended until close: printable ASCII.
func (h header) open(b []byte) ([]byte, mark) {
	b = append(b, h...)
	return b, mark(len(b))
}

// close ends the header whose value began at m.
func (h header) close(b []byte, m mark) []byte {
	b = closeMessage(b, m)
	return closeMessage(b, m-mark(len(h))+2) // after its tag and its length
}

// appendNumber appends the header with the value n.
func (h header) appendNumber(b []byte, n int64) []byte {
	b, m := h.open(b)
	return h.close(strconv.AppendInt(b, n, 10), m)
}

// appendText appends the header with a value of printable ASCII.
func (h header) appendText(b []byte, value string) []byte {
	b, m := h.open(b)
	return h.close(append(b, value...), m)
}
