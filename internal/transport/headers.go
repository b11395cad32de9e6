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
		return a.appendReference(b, c, s)
	}
	if a.headers.IETF {
		b = a.appendRateLimit(b, c, s)
	}
	switch a.headers.Legacy {
	case LegacyOff:
	case LegacyEnvoy:
		b = appendHeader(b, "X-RateLimit-Limit", a.policies.of(s).legacy)
		b = c.appendNumber(b, "X-RateLimit-Remaining", int64(s.Remaining))
		b = c.appendNumber(b, "X-RateLimit-Reset", resetSeconds(s))
	case LegacyGitHub:
		b = c.appendNumber(b, "X-RateLimit-Limit", int64(s.Requests))
		b = c.appendNumber(b, "X-RateLimit-Remaining", int64(s.Remaining))
		b = c.appendNumber(b, "X-RateLimit-Reset", now.Unix()+resetSeconds(s))
	}
	if c.verdict.Over {
		if seconds, ok := a.retryAfter(c, s, now); ok {
			b = c.appendNumber(b, "Retry-After", seconds)
		}
	}
	return b
}

// appendReference appends the reference service's three headers, in its order.
func (a *answerer) appendReference(b []byte, c *call, s *engine.Status) []byte {
	if !a.headers.Reference {
		return b
	}
	b = c.appendNumber(b, a.headers.LimitHeader, int64(s.Requests))
	b = c.appendNumber(b, a.headers.RemainingHeader, int64(s.Remaining))
	return c.appendNumber(b, a.headers.ResetHeader, resetSeconds(s))
}

// appendRateLimit appends the two fields of draft-ietf-httpapi-ratelimit-headers-11 (23 May 2026). It is a draft: its
// syntax is written here and in policy.go only.
func (a *answerer) appendRateLimit(b []byte, c *call, s *engine.Status) []byte {
	p := a.policies.of(s)
	b = appendHeader(b, "RateLimit-Policy", p.policy)
	c.value = append(c.value[:0], p.name...)
	c.value = append(c.value, ";r="...)
	c.value = strconv.AppendUint(c.value, uint64(s.Remaining), 10)
	if t := resetSeconds(s); t > 0 { // nothing comes back to a full bucket, nor to one that never refills
		c.value = append(c.value, ";t="...)
		c.value = strconv.AppendInt(c.value, t, 10)
	}
	return appendHeader(b, "RateLimit", c.value)
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

// appendNumber appends a header whose value is n.
func (c *call) appendNumber(b []byte, name string, n int64) []byte {
	c.value = strconv.AppendInt(c.value[:0], n, 10)
	return appendHeader(b, name, c.value)
}

// appendHeader appends an envoy.config.core.v3.HeaderValue to the headers of the response, unless its value is empty.
// Both parts must be printable ASCII.
func appendHeader[T string | []byte](b []byte, name string, value T) []byte {
	if len(value) == 0 {
		return b
	}
	b, m := openMessage(b, responseHeadersToAdd)
	b = protowire.AppendString(protowire.AppendTag(b, headerKey, protowire.BytesType), name)
	b = protowire.AppendTag(b, headerValue, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(value)))
	b = append(b, value...)
	return closeMessage(b, m)
}
