package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"golang.org/x/net/netutil"

	"github.com/ratelimitd/ratelimitd/internal/servertls"
	"github.com/ratelimitd/ratelimitd/internal/transport"
)

// maxConns bounds the connections of each port; more wait in the system's queue.
const maxConns = 4096

// newTLS reads the certificate of the gRPC port; it returns nil if there is none.
func (a *App) newTLS() (*tls.Config, error) {
	if a.o.GRPCTLS == nil {
		return nil, nil
	}
	o := *a.o.GRPCTLS
	o.Registerer, o.Logger = a.reg, a.log
	var err error
	if a.tls, err = servertls.New(o); err != nil {
		return nil, &OptionsError{fmt.Errorf("gRPC port: %w", err)}
	}
	return a.tls.Config(), nil
}

// newAdminTLS reads the certificate of the admin port, if it has one.
func (a *App) newAdminTLS() error {
	if a.o.AdminTLS == nil {
		return nil
	}
	o := *a.o.AdminTLS
	o.Registerer, o.Logger = nil, a.log // its metrics have the names of the gRPC port's
	var err error
	if a.adminTLS, err = servertls.New(o); err != nil {
		return &OptionsError{fmt.Errorf("admin port: %w", err)}
	}
	return nil
}

// socketPrefix marks an address as the path of a Unix socket.
const socketPrefix = "unix://"

// listen takes a port for this process alone: SO_REUSEPORT, which would share its connections with whoever else asks,
// is never set.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, socketPrefix); ok {
		network, addr = "unix", path
		if err := removeOrphan(ctx, path); err != nil {
			return nil, err
		}
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, network, addr)
	if err != nil {
		// The system's reason is enough: the caller names flag and address.
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = op.Err
		}
		return nil, err
	}
	return netutil.LimitListener(ln, maxConns), nil
}

// removeOrphan removes a socket that a process which is no more has left: nobody answers there.
func removeOrphan(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return nil // listening says what is wrong, if anything is
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return conn.Close()
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	default:
		return nil
	}
}

// closeListener closes a listener that its server may have closed already.
func closeListener(ln net.Listener) error {
	if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// serve runs a server on the named port. The first one that ends by itself ends the process.
func (a *App) serve(name string, run func(net.Listener) error) {
	ln := a.listeners[name]
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			select {
			case a.failed <- fmt.Errorf("serve %s: %w", name, err):
			default:
			}
		}
	}()
	// Undone after what makes the server end, which is added later.
	a.undo.add("wait for the "+name+" server", func(context.Context) error {
		<-done
		return nil
	})
}

// serveHTTP serves h on the named port.
func (a *App) serveHTTP(name string, h http.Handler) {
	s := transport.NewHTTPServer(h, a.log)
	if name == "admin" {
		// gRPC is HTTP/2, with TLS or without.
		s.Protocols = new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetHTTP2(true)
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	run := s.Serve
	if name == "admin" && a.adminTLS != nil {
		s.TLSConfig = a.adminTLS.Config()
		run = func(ln net.Listener) error { return s.ServeTLS(ln, "", "") }
	}
	a.serve(name, run)
	a.undo.add("finish "+name+" requests", func(ctx context.Context) error {
		err := s.Shutdown(ctx)
		if err != nil {
			// The deadline passed with requests still open: they are cut.
			err = errors.Join(err, s.Close())
		}
		return err
	})
}

// background runs work until the returned step, which waits for its end.
func background(work func(context.Context)) func(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	return func(context.Context) error {
		cancel()
		<-done
		return nil
	}
}
