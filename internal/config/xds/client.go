package xds

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/config"
)

// nackPause is how long an answer to a response that was refused already is put off: a control plane may send it again
// as soon as it is answered.
const nackPause = time.Second

// maxMessage bounds the text of a NACK; it cuts between lines.
const maxMessage = 16 << 10

// Client is the config.Source of a control plane. Made by New.
type Client struct {
	o       Options
	node    *corev3.Node
	headers metadata.MD
	log     *slog.Logger
	metrics *metrics

	accepted string // the last version that became current
	refused  refusal
}

// refusal is the last response that was refused. The zero value is none.
type refusal struct {
	sum [sha256.Size]byte
	err error
}

// New returns the rules of a control plane, which it does not ask yet. The error lists everything that is wrong with the
// options.
func New(o Options) (*Client, error) {
	if o.NodeID == "" {
		o.NodeID = DefaultNodeID
	}
	if o.MaxMessageBytes == 0 {
		o.MaxMessageBytes = DefaultMaxMessageBytes
	}
	if o.MinBackoff == 0 {
		o.MinBackoff = DefaultMinBackoff
		if o.MaxBackoff > 0 {
			o.MinBackoff = min(o.MinBackoff, o.MaxBackoff)
		}
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = max(DefaultMaxBackoff, o.MinBackoff)
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Client{o: o, node: &corev3.Node{Id: o.NodeID}, headers: metadata.New(o.Headers), log: o.Logger}
	if c.log == nil {
		c.log = slog.Default()
	}
	if len(o.NodeMetadata) > 0 {
		c.node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for k, v := range o.NodeMetadata {
			c.node.Metadata.Fields[k] = structpb.NewStringValue(v)
		}
	}
	var err error
	if c.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("register xds metrics: %w", err)
	}
	return c, nil
}

// Run delivers what the control plane says, stream after stream, until ctx ends; it returns nil. While there is no
// stream the rules stay what they are.
func (c *Client) Run(ctx context.Context, deliver func(config.Update)) error {
	wait, last := c.o.MinBackoff, ""
	for {
		answered, err := c.stream(ctx, deliver)
		c.metrics.connected.Set(0)
		if ctx.Err() != nil {
			return nil
		}
		if answered {
			wait, last = c.o.MinBackoff, ""
		}
		if err.Error() != last { // once an outage, and again when it is another one
			last = err.Error()
			c.log.Warn("no control plane, the rules stay and it is tried on", "server", c.o.Server, "error", last)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(spread(wait)):
		}
		wait = min(2*wait, c.o.MaxBackoff)
	}
}

// spread returns a time from half of d to one and a half, so that a fleet does not come back at one moment.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }

// stream connects, and follows one stream to its end, which the error tells. It reports whether there was a response.
func (c *Client) stream(ctx context.Context, deliver func(config.Update)) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := c.dial()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).
		StreamAggregatedResources(metadata.NewOutgoingContext(ctx, c.headers))
	if err != nil {
		return false, err
	}
	c.metrics.connected.Set(1)
	c.log.Debug("asking the control plane for rules", "server", c.o.Server, "node", c.o.NodeID)

	// A new stream asks for everything, whatever was had before: versions mean nothing beyond one control plane's life,
	// and one that has begun anew may call other rules by the name that the last ones had.
	request := &discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: typeURL}
	for {
		// Of a stream that has ended, Send says io.EOF, and Recv says why.
		if err := s.Send(request); err != nil && !errors.Is(err, io.EOF) {
			return answered, err
		}
		response, err := s.Recv()
		if err != nil {
			return answered, fmt.Errorf("the stream has ended: %w", err)
		}
		if !answered {
			answered = true
			c.log.Info("the control plane answers", "server", c.o.Server, "node", c.o.NodeID)
		}
		request = c.answer(ctx, response, deliver)
	}
}

// answer delivers a response, and returns the ACK or the NACK of it.
func (c *Client) answer(ctx context.Context, r *discoveryv3.DiscoveryResponse, deliver func(config.Update)) *discoveryv3.DiscoveryRequest {
	err := c.take(ctx, r, deliver)
	request := &discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: typeURL, ResponseNonce: r.GetNonce()}
	if err != nil {
		request.ErrorDetail = status.New(codes.OK, cut(err.Error())).Proto() // the reference tells by the message alone
		c.metrics.responses.WithLabelValues("nack").Inc()
	} else {
		c.accepted = r.GetVersionInfo()
		c.metrics.responses.WithLabelValues("ack").Inc()
	}
	request.VersionInfo = c.accepted
	return request
}

// take delivers a response and returns what was wrong with it. The same mistakes again are not delivered again, and not
// answered at once.
func (c *Client) take(ctx context.Context, r *discoveryv3.DiscoveryResponse, deliver func(config.Update)) error {
	sum := sumOf(r)
	if c.refused.err != nil && sum == c.refused.sum {
		select {
		case <-ctx.Done():
		case <-time.After(spread(nackPause)):
		}
		return c.refused.err
	}
	u := config.Update{Origin: "xds " + c.o.Server, Version: r.GetVersionInfo()}
	if r.GetTypeUrl() != typeURL {
		u.Err = fmt.Errorf("response of type %q: want %q", r.GetTypeUrl(), typeURL)
	} else {
		u.Files, u.Err = ruleFiles(r.GetResources())
	}
	c.refused = refusal{sum: sum}
	u.Done = func(err error) { c.refused.err = err }
	deliver(u)
	return c.refused.err
}

// sumOf identifies a response's version and content.
func sumOf(r *discoveryv3.DiscoveryResponse) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d\n", r.GetTypeUrl(), r.GetVersionInfo(), len(r.GetResources()))
	for _, any := range r.GetResources() {
		fmt.Fprintf(h, "%q %d\n", any.GetTypeUrl(), len(any.GetValue()))
		h.Write(any.GetValue())
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// dial returns a connection of its own for each stream, so that certificates are read again and nothing is left of a
// connection that is half dead. It connects when it is used.
func (c *Client) dial() (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if c.o.TLS != nil {
		t, err := c.o.config()
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(t)
	}
	// A stream may be silent for days. That the other end is gone is left to TCP: HTTP/2 pings without leave, which
	// gRPC servers do not give by default, end the connection.
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}}
	return grpc.NewClient(c.o.Server,
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.o.MaxMessageBytes)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }),
	)
}

// MaxFileBytes is how long a rule file may become that this client delivers, for rule.Options: a response of the largest
// size, all in one resource, as text.
func (c *Client) MaxFileBytes() int { return 8 * c.o.MaxMessageBytes }

// cut shortens a message to whole lines of at most maxMessage bytes.
func cut(msg string) string {
	if len(msg) <= maxMessage {
		return msg
	}
	short := msg[:maxMessage]
	if i := strings.LastIndexByte(short, '\n'); i > 0 {
		short = short[:i]
	}
	short = strings.ToValidUTF8(short, "")
	return fmt.Sprintf("%s\n… and %d lines more", short, strings.Count(msg[len(short):], "\n"))
}
