package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
	"github.com/ratelimitd/ratelimitd/internal/override"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// SetOverride implements the service.
func (s *Server) SetOverride(ctx context.Context, r *v1.SetOverrideRequest) (*v1.SetOverrideResponse, error) {
	if err := s.kept(); err != nil {
		return nil, err
	}
	in := r.GetOverride()
	o := override.Override{
		Domain: in.GetDomain(), Rule: in.GetRule(), Key: in.GetKey(), Value: in.GetValue(), Network: in.GetNetwork(),
		Action:   actions[in.GetAction()],
		Requests: in.GetRequests(), Unit: strings.ToLower(in.GetUnit()), Multiplier: in.GetMultiplier(), Burst: in.GetBurst(),
		Author: in.GetAuthor(), Reason: in.GetReason(),
	}
	switch {
	case in.GetExpireTime() != nil && r.GetTtl() != nil:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("expire_time and ttl: want one of them"))
	case in.GetExpireTime() != nil:
		o.Expires = in.GetExpireTime().AsTime()
	case r.GetTtl() != nil:
		o.Expires = time.Now().Add(r.GetTtl().AsDuration())
	}
	if err := s.fits(&o); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	set, e, err := s.o.Overrides.Set(ctx, o, who(ctx, o.Author), r.GetExpectedSequence())
	if err != nil {
		return nil, fail(err)
	}
	s.o.Overrides.Await(ctx, e.Seq)
	return &v1.SetOverrideResponse{Override: overrideProto(set), Sequence: e.Seq}, nil
}

// fits reports whether the current rules have the limit that o names, and its algorithm can keep o's numbers: what is
// misspelt would have no effect.
func (s *Server) fits(o *override.Override) error {
	if o.Rule == "" {
		return nil
	}
	snapshot := s.o.Live.Current()
	if snapshot == nil {
		return errors.New("there are no rules yet")
	}
	prepared := *o
	mistakes := prepared.Prepare(time.Now())
	found := false
	for _, d := range snapshot.Domains() {
		for _, r := range d.Rules() {
			for _, l := range r.Limits {
				if l.Policy.Rule != o.Rule || o.Domain != "" && o.Domain != d.Name {
					continue
				}
				found = true
				if mistakes == nil && o.Action == override.Limit {
					if err := overLimit(&prepared, l); err != nil {
						return err
					}
				}
			}
		}
	}
	if !found {
		return fmt.Errorf("rule: %q: the current rules have no such limit; ratelimitd check prints their names", o.Rule)
	}
	return nil
}

func overLimit(o *override.Override, l *rule.Limit) error {
	if _, err := o.Over(l.Bucket.Config()); err != nil {
		return fmt.Errorf("%s cannot have these numbers: %w", o.Rule, err)
	}
	return nil
}

// ListOverrides implements the service. Without any it says so only if it is known.
func (s *Server) ListOverrides(ctx context.Context, _ *v1.ListOverridesRequest) (*v1.ListOverridesResponse, error) {
	if err := s.kept(); err != nil {
		return nil, err
	}
	unread := s.o.Overrides.Sync(ctx)
	out := &v1.ListOverridesResponse{Sequence: s.o.Overrides.Seq()}
	for _, o := range s.o.Overrides.Current() {
		out.Overrides = append(out.Overrides, overrideProto(o))
	}
	if unread != nil {
		if len(out.Overrides) == 0 {
			return nil, fail(unread)
		}
		out.Problem = unread.Error()
	}
	return out, nil
}

// RemoveOverride implements the service.
func (s *Server) RemoveOverride(ctx context.Context, r *v1.RemoveOverrideRequest) (*v1.RemoveOverrideResponse, error) {
	if err := s.kept(); err != nil {
		return nil, err
	}
	if strings.TrimSpace(r.GetAuthor()) == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("author: want who is responsible"))
	}
	e, err := s.o.Overrides.Remove(ctx, r.GetId(), who(ctx, r.GetAuthor()), r.GetReason(), r.GetExpectedSequence())
	if err != nil {
		return nil, fail(err)
	}
	s.o.Overrides.Await(ctx, e.Seq)
	return &v1.RemoveOverrideResponse{Sequence: e.Seq}, nil
}

var actions = map[v1.Override_Action]override.Action{
	v1.Override_ACTION_LIMIT: override.Limit, v1.Override_ACTION_EXEMPT: override.Exempt, v1.Override_ACTION_BLOCK: override.Block,
}

func overrideProto(o *override.Override) *v1.Override {
	out := &v1.Override{
		Id: o.ID, Domain: o.Domain, Rule: o.Rule, Key: o.Key, Value: o.Value, Network: o.Network,
		Requests: o.Requests, Unit: o.Unit, Multiplier: o.Multiplier, Burst: o.Burst,
		Author: o.Author, Reason: o.Reason, CreateTime: timestamppb.New(o.Created), ExpireTime: timestamppb.New(o.Expires),
		Target: o.Target(), Effect: o.Effect(),
	}
	for proto, action := range actions {
		if action == o.Action {
			out.Action = proto
		}
	}
	return out
}
