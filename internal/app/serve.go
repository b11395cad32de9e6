package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/transport"
)

// maxConns bounds the connections of each port; more wait in the system's queue.
const maxConns = 4096

// listen takes a port for this process alone: SO_REUSEPORT, which would share its connections with whoever else asks,
// is never set.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		// The system's reason is enough: the caller names flag and address.
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = op.Err
		}
		return nil, err
	}
	return netutil.LimitListener(ln, maxConns), nil
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
	a.serve(name, s.Serve)
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

// How often the shared key secret is asked for.
const (
	learnRetry   = 250 * time.Millisecond // until it is known
	learnRefresh = 10 * time.Second       // afterwards: Redis may have been flushed, and another node made a new one
)

// learn reads the shared key secret from Redis, or creates it there, and reads it again every now and then. Until it is
// known the store pays nothing, and every limit answers by its failure mode.
func learn(ctx context.Context, redis *redisstore.Store, keyer *store.Keyer, log *slog.Logger) {
	t := time.NewTimer(0)
	defer t.Stop()
	var known string
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		secret, err := redis.Secret(ctx)
		if err == nil && string(secret) != known {
			err = keyer.Learn(secret)
		}
		switch {
		case err == nil && known == "":
			log.Info("key secret read from Redis, buckets are shared")
		case err == nil && string(secret) != known:
			log.Warn("key secret in Redis has changed, every bucket starts afresh")
		case err != nil && !failing && ctx.Err() == nil:
			log.Warn("key secret cannot be read from Redis, trying on", "known", known != "", "error", err)
		}
		failing = err != nil
		if err == nil {
			known = string(secret)
		}
		wait := learnRetry
		if known != "" {
			wait = learnRefresh
		}
		t.Reset(wait)
	}
}
