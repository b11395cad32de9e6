package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/net/http2/hpack"
)

// connection is one connection's requests in flight and what came of them. A sender and its own reader share it.
type connection struct {
	net  net.Conn
	in   *bufio.Reader
	run  *run
	draw func() uint64

	first, later []byte // header blocks

	mu      sync.Mutex // guards what follows
	out     []byte     // frames not written yet
	stream  uint32     // the next request's
	flights []flight   // by slot
	flying  int
	credit  uint32 // bytes received since credit was given back
	hpack   *hpack.Decoder
	status  string // grpc-status of the header block being read
	tally   tally
	failed  error
}

// flight is a request under way.
type flight struct {
	stream   uint32        // 0: none
	due      time.Duration // since the run's start
	measured bool
	code     byte
}

// tally is what a connection's measured requests came to.
type tally struct {
	latency          *hdrhistogram.Histogram // nanoseconds
	ok, over, failed int64
}

// The histogram holds from 100 ns to a minute, to three digits.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(100, time.Minute.Nanoseconds(), 3)
}

var errHeaders = errors.New("headers of more than a frame")

// slots is how many flights a connection can tell apart: more than Streams, since streams end out of order.
const slots = 1 << 14

func slot(stream uint32) uint32 { return stream >> 1 & (slots - 1) }

func (r *run) connect(i int) (*connection, error) {
	network, addr := "tcp", r.load.Addr
	authority := addr
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		network, addr, authority = "unix", path, "localhost"
	}
	conn, err := net.DialTimeout(network, addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c := &connection{
		net: conn, in: bufio.NewReaderSize(conn, 64<<10), run: r, draw: r.load.draws(i),
		stream: 1, flights: make([]flight, slots), tally: tally{latency: newHistogram()},
	}
	c.first, c.later = requestHeaders(authority)
	c.hpack = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == "grpc-status" {
			c.status = f.Value
		}
	})
	if _, err := conn.Write(appendPreface(nil)); err != nil {
		return nil, err
	}
	return c, nil
}

// issueLocked adds a request that is due at a moment. The caller flushes.
func (c *connection) issueLocked(due time.Duration) {
	headers := c.later
	if c.stream == 1 {
		headers = c.first
	}
	m := &c.run.load.Message
	c.out = appendFrame(c.out, len(headers), typeHeaders, flagEndHeaders, c.stream)
	c.out = append(c.out, headers...)
	c.out = appendFrame(c.out, len(m.text), typeData, flagEndStream, c.stream)
	c.out = m.append(c.out, c.draw())
	c.flights[slot(c.stream)] = flight{stream: c.stream, due: due, measured: c.run.measuring.Load()}
	c.stream += 2
	c.flying++
}

// flushLocked writes what has been added.
func (c *connection) flushLocked() {
	if len(c.out) == 0 || c.failed != nil {
		return
	}
	if _, err := c.net.Write(c.out); err != nil {
		c.failed = err
	}
	c.out = c.out[:0]
}

// read reads answers until the connection ends. In a closed loop each answer brings the next request; they are written when
// nothing more has arrived.
func (c *connection) read() {
	var header [frameHeader]byte
	body := make([]byte, maxFrame)
	for {
		err := c.readFrame(&header, body)
		if err != nil {
			c.mu.Lock()
			if c.failed == nil {
				c.failed = err
			}
			c.mu.Unlock()
			return
		}
		if c.in.Buffered() < frameHeader {
			c.mu.Lock()
			c.flushLocked()
			c.mu.Unlock()
		}
	}
}

func (c *connection) readFrame(header *[frameHeader]byte, body []byte) error {
	if _, err := io.ReadFull(c.in, header[:]); err != nil {
		return err
	}
	size := int(header[0])<<16 | int(header[1])<<8 | int(header[2])
	if size > len(body) {
		return fmt.Errorf("frame of %d bytes", size)
	}
	body = body[:size]
	if _, err := io.ReadFull(c.in, body); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frameLocked(header[3], header[4], binary.BigEndian.Uint32(header[5:])&(1<<31-1), body)
}

// frameLocked takes one frame in.
func (c *connection) frameLocked(kind, flags byte, stream uint32, body []byte) error {
	ended := flags&flagEndStream != 0
	switch kind {
	case typeData:
		if c.credit += uint32(len(body)); c.credit > window/2 {
			c.out = appendCredit(c.out, c.credit)
			c.credit = 0
		}
		if f := &c.flights[slot(stream)]; f.stream == stream && f.code == 0 {
			f.code = answerCode(body)
		}
	case typeHeaders:
		if flags&flagEndHeaders == 0 {
			return errHeaders
		}
		if flags&flagPadded != 0 {
			return errors.New("padded headers")
		}
		if flags&flagPriority != 0 {
			body = body[5:]
		}
		c.status = ""
		if _, err := c.hpack.Write(body); err != nil {
			return err
		}
		if err := c.hpack.Close(); err != nil {
			return err
		}
	case typeReset:
		c.status, ended = "reset", true
	case typeSettings:
		if flags&flagAck == 0 {
			c.out = appendFrame(c.out, 0, typeSettings, flagAck, 0)
		}
		return nil
	case typePing:
		if flags&flagAck == 0 {
			c.out = append(appendFrame(c.out, len(body), typePing, flagAck, 0), body...)
		}
		return nil
	case typeGoAway:
		return fmt.Errorf("the server went away: %q", body)
	case typeContinuation:
		return errHeaders
	default:
		return nil
	}
	if ended {
		c.endLocked(stream)
	}
	return nil
}

// endLocked takes an answer to account. A reset after the trailers is no second answer.
func (c *connection) endLocked(stream uint32) {
	f := &c.flights[slot(stream)]
	if f.stream != stream {
		return
	}
	f.stream = 0
	c.flying--
	now := c.run.now()
	if f.measured && c.run.measuring.Load() {
		_ = c.tally.latency.RecordValue(min(max((now-f.due).Nanoseconds(), 100), time.Minute.Nanoseconds())) // in range
		switch {
		case c.status != "0":
			c.tally.failed++
		case f.code == 1:
			c.tally.ok++
		case f.code == 2:
			c.tally.over++
		default:
			c.tally.failed++
		}
		c.run.done()
	}
	if c.run.load.Rate == 0 && c.run.more() {
		c.issueLocked(now)
	}
}
