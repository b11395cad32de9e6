package admin

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
	"github.com/ratelimitd/ratelimitd/internal/ledger"
)

const (
	usualEntries = 100
	mostEntries  = 1000
)

// ListAuditEntries implements the service.
func (s *Server) ListAuditEntries(ctx context.Context, r *v1.ListAuditEntriesRequest) (*v1.ListAuditEntriesResponse, error) {
	if err := s.kept(); err != nil {
		return nil, err
	}
	n := int(r.GetLimit())
	if n <= 0 {
		n = usualEntries
	}
	n = min(n, mostEntries)
	var entries []*ledger.Entry
	var err error
	if r.GetSequence() > 0 {
		entries, err = s.o.Ledger.Entries(ctx, r.GetSequence(), n)
	} else {
		entries, err = s.o.Ledger.Last(ctx, n)
	}
	if err != nil {
		return nil, fail(err)
	}
	out := &v1.ListAuditEntriesResponse{}
	for _, e := range entries {
		out.Entries = append(out.Entries, &v1.AuditEntry{
			Sequence: e.Seq, Time: timestamppb.New(e.Time), Node: e.Node, Who: e.Who, What: e.What, On: e.On, Why: e.Why,
			Before: e.Before, After: e.After, PreviousHash: e.Prev, Hash: e.Hash,
		})
	}
	return out, nil
}

// VerifyAudit implements the service.
func (s *Server) VerifyAudit(ctx context.Context, _ *v1.VerifyAuditRequest) (*v1.VerifyAuditResponse, error) {
	if err := s.kept(); err != nil {
		return nil, err
	}
	v, err := s.o.Ledger.Verify(ctx)
	if broken, ok := errors.AsType[*ledger.BrokenError](err); ok {
		return &v1.VerifyAuditResponse{Broken: broken.Error(), BrokenSequence: broken.Seq}, nil
	}
	if err != nil {
		return nil, fail(err)
	}
	return &v1.VerifyAuditResponse{FirstSequence: v.First, LastSequence: v.Last, LastHash: v.Hash}, nil
}
