package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// rawConn is an HTTP/2 client of single frames, for what well-behaved clients never send.
type rawConn struct {
	net.Conn
	*http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
}

func dialRaw(t *testing.T, addr string) *rawConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() }) // some servers close first
	if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	c := &rawConn{Conn: nc, Framer: http2.NewFramer(nc, nc)}
	c.enc = hpack.NewEncoder(&c.block)
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

// call sends the headers and the message of a request on a new stream.
func (c *rawConn) call(id uint32, msg []byte, more ...hpack.HeaderField) error {
	c.block.Reset()
	fields := []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: rlsv3.RateLimitService_ShouldRateLimit_FullMethodName},
		{Name: ":authority", Value: "test"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}
	for _, f := range append(fields, more...) {
		if err := c.enc.WriteField(f); err != nil {
			return err
		}
	}
	err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true})
	if err != nil {
		return err
	}
	return c.WriteData(id, true, append([]byte{0, 0, 0, 0, byte(len(msg))}, msg...))
}

// goAway reads until the server says GOAWAY and returns its code.
func (c *rawConn) goAway(t *testing.T) http2.ErrCode {
	t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("no GOAWAY: %v", err)
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			return g.ErrCode
		}
	}
}

var small = wire{}.text(1, "d").bytes(2, nil)

// TestRapidResetIsBounded opens and resets thousands of streams (CVE-2023-44487): the handlers at work stay within the
// streams that one connection may have, and another client is answered meanwhile. It counts the process's goroutines, so
// it runs alone.
func TestRapidResetIsBounded(t *testing.T) {
	var working, most atomic.Int64
	release := make(chan struct{})
	_, addr := start(t, Options{Decider: deciderFunc(func(ctx context.Context, r *engine.Request, v *engine.Verdict) error {
		if r.Domain == "d" {
			n := working.Add(1)
			defer working.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-release // deaf to the reset, as the worst handler would be
		}
		return allow(ctx, r, v)
	})})
	before := runtime.NumGoroutine()
	c := dialRaw(t, addr)
	const resets, lag = 5 * maxStreams, 100 // streams live long enough for their requests to be read
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for i := range uint32(resets) {
			if c.call(2*i+1, small) != nil || i >= lag && c.WriteRSTStream(2*(i-lag)+1, http2.ErrCodeCancel) != nil {
				return // the server hung up
			}
		}
	}()
	other := rlsv3.NewRateLimitServiceClient(dial(t, addr))
	for range 100 {
		if _, err := other.ShouldRateLimit(testContext(t), fullRequest()); err != nil {
			t.Errorf("the other client: %v", err)
		}
	}
	eventually(t, "the server stops reading", func() bool { return working.Load() >= maxStreams })
	if got, limit := runtime.NumGoroutine()-before, maxStreams+200; got > limit {
		t.Errorf("got %d more goroutines, want at most %d", got, limit)
	}
	close(release)
	<-flooded
	if got := most.Load(); got > maxStreams {
		t.Errorf("got %d handlers at once, want at most %d", got, maxStreams)
	}
}

// TestStreamsBeyondTheLimitWait holds that a well-behaved client's calls beyond the limit wait for their turn.
func TestStreamsBeyondTheLimitWait(t *testing.T) {
	t.Parallel()
	const calls = maxStreams + 100
	b := newBlocking(calls)
	_, addr := start(t, Options{Decider: b})
	c := rlsv3.NewRateLimitServiceClient(dial(t, addr))
	ctx := testContext(t)
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			if _, err := c.ShouldRateLimit(ctx, fullRequest()); err != nil {
				t.Error(err)
			}
		})
	}
	for range maxStreams {
		<-b.entered
	}
	// A call on a connection of its own takes longer than any of the others would, if the server let them in.
	go func() {
		_, _ = rlsv3.NewRateLimitServiceClient(dial(t, addr)).ShouldRateLimit(ctx, fullRequest())
	}()
	<-b.entered
	select {
	case <-b.entered:
		t.Errorf("more than %d handlers at once on one connection", maxStreams)
	default:
	}
	close(b.release)
	wg.Wait()
}

// TestPingFloodIsEnded holds that pings beyond reason end a connection, and that the few of a restless client do not.
func TestPingFloodIsEnded(t *testing.T) {
	t.Parallel()
	_, addr := start(t, Options{})
	c := dialRaw(t, addr)
	for range 10 {
		if err := c.WritePing(false, [8]byte{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.goAway(t); got != http2.ErrCodeEnhanceYourCalm {
		t.Errorf("got %v, want %v", got, http2.ErrCodeEnhanceYourCalm)
	}
}

func TestHeadersBeyondTheLimit(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	_, addr := start(t, Options{Decider: deciderFunc(func(ctx context.Context, r *engine.Request, v *engine.Verdict) error {
		asked.Add(1)
		return allow(ctx, r, v)
	})})
	c := dialRaw(t, addr)
	// The server may close the connection in the middle of it.
	_ = c.call(1, small, hpack.HeaderField{Name: "x", Value: string(bytes.Repeat([]byte("v"), maxHeaderList))})
	for {
		f, err := c.ReadFrame()
		if err != nil {
			break
		}
		if f.Header().StreamID == 1 && f.Header().Type == http2.FrameRSTStream || f.Header().Type == http2.FrameGoAway {
			break
		}
		if f.Header().Type == http2.FrameData {
			t.Fatal("answered")
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the decider was asked %d times, want 0", n)
	}
}

// TestSilentConnectionsAreClosed holds that connections that never say anything are closed after the handshake's time and
// keep nobody out meanwhile.
func TestSilentConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	_, addr := start(t, Options{Registerer: reg})
	const silent = 100
	var conns []net.Conn
	for range silent {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		conns = append(conns, nc)
	}
	c := rlsv3.NewRateLimitServiceClient(dial(t, addr))
	if _, err := c.ShouldRateLimit(testContext(t), fullRequest()); err != nil {
		t.Fatal(err)
	}
	if got := metric(t, reg, "ratelimitd_transport_connections"); got < 1 || got > silent+1 {
		t.Errorf("connections: counted %v, want 1 to %d", got, silent+1)
	}
	for _, nc := range conns {
		if err := nc.SetReadDeadline(time.Now().Add(2 * connectionTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, nc); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Fatalf("still open after %v", 2*connectionTimeout)
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// TestC29UnknownDomains holds case C29's memory: distinct domains leave no series behind in this room.
func TestC29UnknownDomains(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := newService(Options{Decider: deciderFunc(allow), Headers: Headers{IETF: true}}.withDefaults(), newMetrics(reg).grpc)
	series := func() (n int) {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	before := series()
	for i := range 100_000 {
		c := newCall()
		c.undecodable = c.decode(wire{}.text(1, fmt.Sprintf("domain-%d", i)).bytes(2, nil))
		if _, err := s.handle(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		c.release()
	}
	if got := series(); got != before {
		t.Errorf("series: got %d, want %d as before", got, before)
	}
}

// TestTwoMessagesAreRefused holds that a client that sends two requests in one call gets an error of its own making and
// reaches no decider.
func TestTwoMessagesAreRefused(t *testing.T) {
	t.Parallel()
	_, addr := start(t, Options{})
	s, err := dial(t, addr).NewStream(testContext(t), &grpc.StreamDesc{ClientStreams: true}, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.SendMsg(fullRequest()); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(new(rlsv3.RateLimitResponse)); status.Code(err) != codes.Internal {
		t.Errorf("got %v, want INTERNAL", err)
	}
}
