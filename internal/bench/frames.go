package bench

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/net/http2/hpack"
)

// HTTP/2 as far as a load needs it (RFC 9113): the types and flags of frames, and our side of a connection.
const (
	frameHeader = 9
	maxFrame    = 16 << 10 // what a peer must accept

	typeData         = 0
	typeHeaders      = 1
	typeReset        = 3
	typeSettings     = 4
	typePing         = 6
	typeGoAway       = 7
	typeWindowUpdate = 8
	typeContinuation = 9

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingTableSize = 1
	settingWindow    = 4

	window = 1 << 30 // of each stream and of the connection, so large that credit is given back rarely
)

const path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

func appendFrame(b []byte, size int, kind, flags byte, stream uint32) []byte {
	b = append(b, byte(size>>16), byte(size>>8), byte(size), kind, flags)
	return binary.BigEndian.AppendUint32(b, stream)
}

// appendPreface appends what opens a connection. The server is told to keep no header table for us, so that each of its
// header blocks can be read by itself.
func appendPreface(b []byte) []byte {
	b = append(b, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"...)
	b = appendFrame(b, 12, typeSettings, 0, 0)
	b = binary.BigEndian.AppendUint32(append(b, 0, settingTableSize), 0)
	b = binary.BigEndian.AppendUint32(append(b, 0, settingWindow), window)
	return appendCredit(b, window-65535)
}

// appendCredit lets the server send so many bytes more on the connection.
func appendCredit(b []byte, bytes uint32) []byte {
	b = appendFrame(b, 4, typeWindowUpdate, 0, 0)
	return binary.BigEndian.AppendUint32(b, bytes)
}

// requestHeaders returns the header block of every request: the first on a connection enters its fields in the server's
// table, as a proxy's does, and the later ones refer to them.
func requestHeaders(authority string) (first, later []byte) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	block := func() []byte {
		b.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path},
			{Name: ":authority", Value: authority}, {Name: "content-type", Value: "application/grpc"},
			{Name: "te", Value: "trailers"}, {Name: "user-agent", Value: "ratelimitd-bench"},
		} {
			_ = e.WriteField(f) // to memory
		}
		return bytes.Clone(b.Bytes())
	}
	return block(), block()
}

// answerCode reads the overall code of the RateLimitResponse that begins in a DATA frame after gRPC's five bytes: 1 is OK,
// 2 OVER_LIMIT. Every server that is measured writes it first. 0: none is there.
func answerCode(data []byte) byte {
	if len(data) < 7 || data[0] != 0 || data[5] != 1<<3 {
		return 0
	}
	return data[6]
}
