package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
	"github.com/ratelimitd/ratelimitd/internal/ledger"
)

// Explain implements the service.
func (s *Server) Explain(ctx context.Context, r *v1.ExplainRequest) (*v1.ExplainResponse, error) {
	req, err := request(r.GetRequest())
	if err != nil {
		return nil, err
	}
	x, err := s.o.Engine.Explain(ctx, req)
	if err != nil {
		return nil, undecided(err)
	}
	text, err := json.Marshal(x)
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	out := new(structpb.Struct)
	if err := out.UnmarshalJSON(text); err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return &v1.ExplainResponse{Explanation: out}, nil
}

// GrantHits implements the service. The audit log is told first: what it tells of may fail then, but nothing is given
// back that it does not tell of.
func (s *Server) GrantHits(ctx context.Context, r *v1.GrantHitsRequest) (*v1.GrantHitsResponse, error) {
	if err := s.kept(); err != nil {
		return nil, err
	}
	if strings.TrimSpace(r.GetAuthor()) == "" || strings.TrimSpace(r.GetReason()) == "" {
		return nil, fail(config.ErrNoReason)
	}
	if r.GetHits() < 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("hits: %d: want 0 or more", r.GetHits()))
	}
	req, err := request(r.GetRequest())
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d hits", r.GetHits())
	if r.GetHits() == 0 {
		what = "all hits"
	}
	if _, err := s.o.Ledger.Commit(ctx, func(ledger.State) (*ledger.Change, error) {
		return &ledger.Change{
			Who: who(ctx, r.GetAuthor()), What: "bucket.granted", On: r.GetRequest(), Why: r.GetReason(), After: what,
		}, nil
	}); err != nil {
		return nil, fail(err)
	}
	granted, err := s.o.Engine.Grant(ctx, req, r.GetHits())
	// Every node may remember a denial that no longer holds.
	s.o.Ledger.Announce(ctx)
	if err != nil {
		return nil, undecided(err)
	}
	out := &v1.GrantHitsResponse{}
	for _, g := range granted {
		if g.Unpaid {
			return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("the store of %s did not answer: hits may or may not have been given back", g.Limit))
		}
		out.Buckets = append(out.Buckets, &v1.Bucket{Rule: g.Limit, Key: g.Key, Remaining: g.Remaining})
	}
	if len(out.Buckets) == 0 {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("the request charges no bucket; explain says why"))
	}
	return out, nil
}

func request(text string) (*engine.Request, error) {
	req, err := shorthand.ParseRequest(text)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	return req, nil
}

// undecided is the error of a request that cannot be decided at all.
func undecided(err error) error {
	if errors.Is(err, engine.ErrNoRules) {
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return connect.NewError(connect.CodeInvalidArgument, err)
}
