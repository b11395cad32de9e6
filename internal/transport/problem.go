package transport

import (
	"strconv"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// Problem types of draft-ietf-httpapi-ratelimit-headers-11, section 8, to be registered when it is approved.
const (
	problemQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	problemReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	problemContentType     = "application/problem+json"

	// What all bodies of one kind begin with.
	exceededProblem = `{"type":"` + problemQuotaExceeded + `","title":"Quota Exceeded","status":429`
	reducedProblem  = `{"type":"` + problemReducedCapacity + `","title":"Temporary Reduced Capacity","status":429`
)

// maxProblem bounds the bytes of a body.
const maxProblem = 512

// blockedProblem is the body of a denial by the blocklist: it says no more than the status does, since its reader is who was blocked.
const blockedProblem = `{"type":"about:blank","title":"Too Many Requests","status":429}`

// appendProblem appends the body of a denial by s as problem+json (RFC 9457); s is nil if no limit refused it. The
// names in it are ours, so it holds nothing that a caller sent.
func appendProblem(b []byte, s *engine.Status) []byte {
	if s != nil && s.Unpaid {
		b = append(b, reducedProblem...)
	} else {
		b = append(b, exceededProblem...)
	}
	if s == nil {
		return append(b, '}')
	}
	if !s.Unpaid {
		b = append(b, `,"detail":"Allowed are `...)
		b = strconv.AppendUint(b, uint64(s.Requests), 10)
		b = append(b, " requests per "...)
		if s.Multiplier > 1 {
			b = strconv.AppendUint(b, uint64(s.Multiplier), 10)
			b = append(b, ' ')
		}
		b = append(b, s.Unit.String()...)
		if s.Multiplier > 1 {
			b = append(b, 's')
		}
		b = append(b, `."`...)
	}
	b = append(b, `,"violated-policies":[`...)
	b = appendName(b, s)
	return append(b, "]}"...)
}
