package transport

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// answerer turns verdicts into RateLimitResponses. Safe for concurrent use.
type answerer struct {
	headers     Headers
	retryJitter bool
	problem     bool
	metadata    bool
	policies    policies
}

func newAnswerer(o Options) *answerer {
	return &answerer{headers: o.Headers, retryJitter: o.RetryJitter, problem: o.Problem, metadata: o.ResponseMetadata}
}

// answer returns the encoded RateLimitResponse to c, whose verdict is decided, in a buffer of its own.
func (a *answerer) answer(c *call, now time.Time) []byte {
	if c.tooLarge() {
		return appendRefusal(make([]byte, 0, 4*(c.descriptors()+1)), c.descriptors())
	}
	v := &c.verdict
	size := 256 + 48*len(v.Statuses) // of the common answer, so that it grows once at most
	if a.problem && v.Over {
		size += maxProblem
	}
	b := make([]byte, 0, size)
	b = appendVerdict(b, v)
	b = a.appendHeaders(b, c, now)
	if a.problem && v.Over && !v.Envoy {
		b = appendHeader(b, "content-type", problemContentType)
		if v.Blocked != nil {
			c.value = append(c.value[:0], blockedProblem...)
		} else {
			c.value = appendProblem(c.value[:0], deciding(v))
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, responseRawBody, protowire.BytesType), c.value)
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
