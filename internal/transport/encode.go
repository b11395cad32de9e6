package transport

import (
	"encoding/binary"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// Numbers of the fields we write.
const (
	// Of envoy.service.ratelimit.v3.RateLimitResponse.
	responseOverallCode     = 1
	responseStatuses        = 2
	responseHeadersToAdd    = 3
	responseRawBody         = 5
	responseDynamicMetadata = 6

	// Of RateLimitResponse.DescriptorStatus.
	statusCode               = 1
	statusCurrentLimit       = 2
	statusLimitRemaining     = 3
	statusDurationUntilReset = 4

	// Of RateLimitResponse.RateLimit.
	limitRequestsPerUnit = 1
	limitUnit            = 2
	limitName            = 3
	limitUnitMultiplier  = 4

	// Of google.protobuf.Duration.
	durationSeconds = 1
	durationNanos   = 2

	// Of envoy.config.core.v3.HeaderValue.
	headerKey   = 1
	headerValue = 2
)

// appendVerdict appends the overall code and the statuses of v.
func appendVerdict(b []byte, v *engine.Verdict) []byte {
	b = appendCode(b, responseOverallCode, v.Over)
	for i := range v.Statuses {
		var m mark
		b, m = openMessage(b, responseStatuses)
		b = appendStatus(b, &v.Statuses[i], v.Envoy)
		b = closeMessage(b, m)
	}
	return b
}

// appendRefusal appends the answer to a request too large to match: over the limit, one bare status a descriptor.
func appendRefusal(b []byte, descriptors int) []byte {
	b = appendCode(b, responseOverallCode, true)
	for range descriptors {
		var m mark
		b, m = openMessage(b, responseStatuses)
		b = appendCode(b, statusCode, true)
		b = closeMessage(b, m)
	}
	return b
}

func appendStatus(b []byte, s *engine.Status, wholeSeconds bool) []byte {
	b = appendCode(b, statusCode, s.Over)
	if s.HasLimit {
		var m mark
		b, m = openMessage(b, statusCurrentLimit)
		b = appendUint(b, limitRequestsPerUnit, uint64(s.Requests))
		b = appendUint(b, limitUnit, uint64(units[s.Unit]))
		b = appendText(b, limitName, s.Name)
		if s.Multiplier > 1 {
			var w mark
			b, w = openMessage(b, limitUnitMultiplier)
			b = appendUint(b, 1, uint64(s.Multiplier))
			b = closeMessage(b, w)
		}
		b = closeMessage(b, m)
	}
	b = appendUint(b, statusLimitRemaining, uint64(s.Remaining))
	if s.HasLimit && s.Reset >= 0 { // a wait that never ends has no duration
		reset := s.Reset
		if wholeSeconds {
			reset = time.Duration(ceilSeconds(reset)) * time.Second
		}
		var m mark
		b, m = openMessage(b, statusDurationUntilReset)
		b = appendUint(b, durationSeconds, uint64(reset/time.Second))
		b = appendUint(b, durationNanos, uint64(reset%time.Second))
		b = closeMessage(b, m)
	}
	return b
}

// units are Envoy's numbers of our units.
var units = [...]rlsv3.RateLimitResponse_RateLimit_Unit{
	bucket.NoUnit: rlsv3.RateLimitResponse_RateLimit_UNKNOWN,
	bucket.Second: rlsv3.RateLimitResponse_RateLimit_SECOND,
	bucket.Minute: rlsv3.RateLimitResponse_RateLimit_MINUTE,
	bucket.Hour:   rlsv3.RateLimitResponse_RateLimit_HOUR,
	bucket.Day:    rlsv3.RateLimitResponse_RateLimit_DAY,
	bucket.Week:   rlsv3.RateLimitResponse_RateLimit_WEEK,
	bucket.Month:  rlsv3.RateLimitResponse_RateLimit_MONTH,
	bucket.Year:   rlsv3.RateLimitResponse_RateLimit_YEAR,
}

// ceilSeconds returns d in whole seconds, rounded up; d is not negative.
func ceilSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// appendCode appends OK or OVER_LIMIT. UNKNOWN is never sent: Envoy would let the request pass.
func appendCode(b []byte, num protowire.Number, over bool) []byte {
	code := rlsv3.RateLimitResponse_OK
	if over {
		code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	return appendUint(b, num, uint64(code))
}

// appendTag appends the tag of a field, whose number is below 16 as all that we write are.
func appendTag(b []byte, num protowire.Number, typ protowire.Type) []byte {
	return append(b, byte(num)<<3|byte(typ))
}

// appendUint appends a varint field, unless it is zero, which is proto3's default.
func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	switch {
	case v == 0:
		return b
	case v < 0x80:
		return append(b, byte(num)<<3|byte(protowire.VarintType), byte(v))
	}
	return protowire.AppendVarint(appendTag(b, num, protowire.VarintType), v)
}

// appendText appends a string field, unless it is empty. Bytes that are not UTF-8 are replaced: a proto3 string must be
// valid, or the receiver may drop the whole answer.
func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(appendTag(b, num, protowire.BytesType), strings.ToValidUTF8(s, "\uFFFD"))
}

// mark is where an open message's content begins.
type mark int

// openMessage begins a message field, whose content is what is appended until closeMessage.
func openMessage(b []byte, num protowire.Number) ([]byte, mark) {
	b = append(appendTag(b, num, protowire.BytesType), 0) // a byte for the length
	return b, mark(len(b))
}

// closeMessage ends the message that began at m. Content of 128 bytes or more moves to make room for its length.
func closeMessage(b []byte, m mark) []byte {
	n := len(b) - int(m)
	if more := protowire.SizeVarint(uint64(n)) - 1; more > 0 {
		var room [binary.MaxVarintLen64]byte
		b = append(b, room[:more]...)
		copy(b[int(m)+more:], b[m:int(m)+n])
	}
	protowire.AppendVarint(b[:m-1], uint64(n))
	return b
}
