package admin

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"

	v1connect "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1/ratelimitdv1connect"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/ledger"
	"github.com/ratelimitd/ratelimitd/internal/override"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// maxMessage bounds a call: 16 MiB of rules, and base64 of them in JSON.
const maxMessage = 24 << 20

// Options configures New. Live, Engine and Rules must be given.
type Options struct {
	Live   *config.Live
	Engine *engine.Engine
	Rules  *config.Published // checks rules; publishes them too, if Publishes

	Publishes bool // whether this node takes its rules from Redis

	// Both nil where nothing can be kept; then Unkept says why.
	Ledger    *ledger.Ledger
	Overrides *override.Keeper
	Unkept    string
}

// Server answers the calls of the admin service. Safe for concurrent use.
type Server struct{ o Options }

// New returns a server.
func New(o Options) *Server { return &Server{o} }

// Handler returns the path that all calls begin with, and what answers them: gRPC where the connection is HTTP/2, and
// JSON.
func (s *Server) Handler() (path string, h http.Handler) {
	return v1connect.NewAdminServiceHandler(s, connect.WithReadMaxBytes(maxMessage))
}

// fail gives an error the code that its kind has.
func fail(err error) error {
	if err == nil {
		return nil
	}
	var mistakes rule.Errors
	var invalid *override.InvalidError
	var broken *ledger.BrokenError
	is := func(kinds ...error) bool {
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				return true
			}
		}
		return false
	}
	code := connect.CodeFailedPrecondition // what the ledger is kept in refuses, or is not as it must be
	switch {
	case is(ledger.ErrUnavailable):
		code = connect.CodeUnavailable
	case errors.As(err, &mistakes), errors.As(err, &invalid), is(config.ErrEmpty, config.ErrNoReason):
		code = connect.CodeInvalidArgument
	case is(config.ErrStale, ledger.ErrConflict):
		code = connect.CodeAborted
	case is(override.ErrUnknown, config.ErrNoVersion):
		code = connect.CodeNotFound
	case errors.As(err, &broken):
		code = connect.CodeDataLoss
	}
	return connect.NewError(code, err)
}

// kept returns an error where nothing can be kept.
func (s *Server) kept() error {
	if s.o.Ledger == nil {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New(s.o.Unkept))
	}
	return nil
}

// publishes returns an error where rules come from elsewhere.
func (s *Server) publishes() error {
	if !s.o.Publishes {
		return connect.NewError(connect.CodeFailedPrecondition,
			errors.New("this node does not take its rules from Redis: change them where they come from, or start it with --rules-from-redis"))
	}
	return nil
}
