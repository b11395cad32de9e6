package admin

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// GetRules implements the service.
func (s *Server) GetRules(ctx context.Context, r *v1.GetRulesRequest) (*v1.GetRulesResponse, error) {
	st := s.o.Live.Status()
	out := &v1.GetRulesResponse{Origin: st.Origin, OriginVersion: st.OriginVersion, Hash: st.Hash}
	if !s.o.Publishes {
		if r.GetVersion() != 0 {
			return nil, s.publishes()
		}
		return out, nil
	}
	v, files, err := s.o.Rules.Files(ctx, r.GetVersion())
	if err != nil {
		return nil, fail(err)
	}
	out.Published, out.Hash = version(v), v.Hash
	for _, f := range files {
		out.Files = append(out.Files, &v1.RuleFile{Name: f.Name, Data: f.Data})
	}
	return out, nil
}

// ValidateRules implements the service.
func (s *Server) ValidateRules(_ context.Context, r *v1.ValidateRulesRequest) (*v1.ValidateRulesResponse, error) {
	_, warnings, err := s.o.Rules.Check(ruleFiles(r.GetFiles()))
	return &v1.ValidateRulesResponse{Errors: rule.Mistakes(err), Warnings: texts(warnings)}, nil
}

// DiffRules implements the service.
func (s *Server) DiffRules(ctx context.Context, r *v1.DiffRulesRequest) (*v1.DiffRulesResponse, error) {
	after, warnings, err := s.o.Rules.Check(ruleFiles(r.GetFiles()))
	out := &v1.DiffRulesResponse{Errors: rule.Mistakes(err), Warnings: texts(warnings)}
	if err != nil {
		return out, nil
	}
	before := s.o.Live.Current()
	if s.o.Publishes {
		v, files, err := s.o.Rules.Files(ctx, 0)
		switch {
		case errors.Is(err, config.ErrNotPublished):
			before = nil
		case err != nil:
			return nil, fail(err)
		default:
			out.Version = v.Number
			if before, _, err = s.o.Rules.Check(files); err != nil {
				before = nil // no longer good: all of it changes
			}
		}
	}
	for _, d := range config.Diff(before, after) {
		out.Changes = append(out.Changes, d.String())
	}
	return out, nil
}

// ApplyRules implements the service.
func (s *Server) ApplyRules(ctx context.Context, r *v1.ApplyRulesRequest) (*v1.ApplyRulesResponse, error) {
	if err := s.publishes(); err != nil {
		return nil, err
	}
	v, err := s.o.Rules.Publish(ctx, ruleFiles(r.GetFiles()), config.Publication{
		Expect: r.GetExpectedVersion(), Author: r.GetAuthor(), Who: who(ctx, r.GetAuthor()), Reason: r.GetReason(),
	})
	if err != nil {
		return nil, fail(err)
	}
	return &v1.ApplyRulesResponse{Version: version(v)}, nil
}

// ListRuleVersions implements the service.
func (s *Server) ListRuleVersions(ctx context.Context, _ *v1.ListRuleVersionsRequest) (*v1.ListRuleVersionsResponse, error) {
	if err := s.publishes(); err != nil {
		return nil, err
	}
	list, err := s.o.Rules.History(ctx)
	if err != nil {
		return nil, fail(err)
	}
	out := &v1.ListRuleVersionsResponse{}
	for _, v := range list {
		out.Versions = append(out.Versions, version(v))
	}
	return out, nil
}

// RollbackRules implements the service.
func (s *Server) RollbackRules(ctx context.Context, r *v1.RollbackRulesRequest) (*v1.RollbackRulesResponse, error) {
	if err := s.publishes(); err != nil {
		return nil, err
	}
	if r.GetVersion() <= 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("version: want the one whose content is to come back"))
	}
	v, err := s.o.Rules.Rollback(ctx, r.GetVersion(), config.Publication{
		Expect: r.GetExpectedVersion(), Author: r.GetAuthor(), Who: who(ctx, r.GetAuthor()), Reason: r.GetReason(),
	})
	if err != nil {
		return nil, fail(err)
	}
	return &v1.RollbackRulesResponse{Version: version(v)}, nil
}

func version(v *config.Version) *v1.RuleVersion {
	return &v1.RuleVersion{
		Version: v.Number, Hash: v.Hash, CreateTime: timestamppb.New(v.Created), Author: v.Author, Reason: v.Reason, RollbackOf: v.Of,
	}
}

func ruleFiles(list []*v1.RuleFile) []rule.File {
	out := make([]rule.File, len(list))
	for i, f := range list {
		out[i] = rule.File{Name: f.GetName(), Data: f.GetData()}
	}
	return out
}

func texts(warnings []rule.Warning) []string {
	out := make([]string, len(warnings))
	for i := range warnings {
		out[i] = warnings[i].String()
	}
	return out
}
