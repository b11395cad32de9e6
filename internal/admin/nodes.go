package admin

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
	"github.com/ratelimitd/ratelimitd/internal/ledger"
)

// ListNodes implements the service.
func (s *Server) ListNodes(ctx context.Context, _ *v1.ListNodesRequest) (*v1.ListNodesResponse, error) {
	if err := s.kept(); err != nil {
		return nil, err
	}
	reports, err := s.o.Ledger.Reports(ctx)
	if err != nil {
		return nil, fail(err)
	}
	slices.SortFunc(reports, func(a, b ledger.Report) int { return cmp.Compare(a.Node, b.Node) })
	out := &v1.ListNodesResponse{}
	for _, r := range reports {
		out.Nodes = append(out.Nodes, &v1.Node{
			Name: r.Node, Build: r.Build, ReportTime: timestamppb.New(r.Time), RulesHash: r.Hash, RulesOrigin: r.Origin,
			RulesOriginVersion: r.OriginVersion, RulesError: r.Error, Sequence: r.Seq,
		})
	}
	return out, nil
}
