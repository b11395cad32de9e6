package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is an address in front of a server, which may come to lead to another one, be slow, or cut connections. Made by
// StartProxy; safe for concurrent use.
type Proxy struct {
	Addr string

	t       testing.TB
	ln      net.Listener
	serving sync.WaitGroup

	mu    sync.Mutex
	to    string
	delay time.Duration
	conns map[net.Conn]bool // nil: it has ended
}

// StartProxy starts a proxy of the server at addr. It ends with the test.
func StartProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: ln.Addr().String(), t: t, ln: ln, to: addr, conns: make(map[net.Conn]bool)}
	p.serving.Go(p.serve)
	t.Cleanup(func() {
		_ = ln.Close() // ends serve
		p.Cut()
		p.mu.Lock()
		p.conns = nil
		p.mu.Unlock()
		p.serving.Wait()
	})
	return p
}

// Point has new connections lead to addr.
func (p *Proxy) Point(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = addr
}

// Delay holds back what servers say from now on, by d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, as from a firewall
		}
		_ = c.Close() // its copies end
	}
	clear(p.conns)
}

func (p *Proxy) serve() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		to := p.to
		p.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = client.Close() // as refused as can be
			continue
		}
		p.mu.Lock()
		if p.conns == nil {
			p.mu.Unlock()
			_, _ = client.Close(), server.Close()
			return
		}
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.serving.Go(func() { p.pass(server, client, false) })
		p.serving.Go(func() { p.pass(client, server, true) })
	}
}

// pass carries bytes one way until either end is gone, and then closes both.
func (p *Proxy) pass(to, from net.Conn, slowly bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if slowly {
			p.mu.Lock()
			d := p.delay
			p.mu.Unlock()
			if d > 0 {
				<-time.After(d)
			}
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	p.mu.Lock()
	delete(p.conns, to)
	delete(p.conns, from)
	p.mu.Unlock()
}
