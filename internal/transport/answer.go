package transport

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// answerer turns verdicts into RateLimitResponses. Safe for concurrent use.
type answerer struct {
	headers     Headers
	retryJitter bool
	problem     bool
	metadata    bool

	referenceLimit, referenceRemaining, referenceReset header
}

func newAnswerer(o Options) *answerer {
	h := o.Headers
	return &answerer{
		headers: h, retryJitter: o.RetryJitter, problem: o.Problem, metadata: o.ResponseMetadata,
		referenceLimit: newHeader(h.LimitHeader), referenceRemaining: newHeader(h.RemainingHeader), referenceReset: newHeader(h.ResetHeader),
	}
}

// answer returns the encoded RateLimitResponse to c, whose verdict is decided, in a buffer of its own.
func (a *answerer) answer(c *call, now time.Time) []byte {
	return a.append(make([]byte, 0, a.size(c)), c, now)
}

// size returns about how many bytes the answer to c takes, so that its buffer grows once at most.
func (a *answerer) size(c *call) int {
	if c.tooLarge() {
		return 4 * (c.descriptors() + 1)
	}
	size := 256 + 48*len(c.verdict.Statuses)
	if a.problem && c.verdict.Over {
		size += maxProblem
	}
	return size
}

// needsTime reports whether the answer to c says anything that depends on the time.
func (a *answerer) needsTime(c *call) bool { return c.verdict.Over || a.headers.Legacy == LegacyGitHub }

// append appends the encoded RateLimitResponse to c, whose verdict is decided. now may be zero where needsTime is false.
func (a *answerer) append(b []byte, c *call, now time.Time) []byte {
	if c.tooLarge() {
		return appendRefusal(b, c.descriptors())
	}
	v := &c.verdict
	b = appendVerdict(b, v)
	b = a.appendHeaders(b, c, now)
	if a.problem && v.Over && !v.Envoy {
		b = headerContentType.appendText(b, problemContentType)
		var m mark
		b, m = openMessage(b, responseRawBody)
		if v.Blocked != nil {
			b = append(b, blockedProblem...)
		} else {
			b = appendProblem(b, deciding(v))
		}
		b = closeMessage(b, m)
	}
	if a.metadata {
		var m mark
		b, m = openMessage(b, responseDynamicMetadata)
		b = appendMetadata(b, c)
		b = closeMessage(b, m)
	}
	return b
}

// deciding returns the status that headers and bodies speak of, nil if no limit applies.
func deciding(v *engine.Verdict) *engine.Status {
	if v.Nearest < 0 {
		return nil
	}
	return &v.Statuses[v.Nearest]
}
