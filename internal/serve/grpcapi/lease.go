package grpcapi

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// lease returns the lease with the id of a request that has no unknown fields.
func (s *limiter) lease(ctx context.Context, id string, in proto.Message) (decide.Lease, error) {
	lease, err := s.decide.Lease(ctx, decide.CallerOf(ctx), id)
	if err == nil {
		err = understood(in)
	}
	return lease, err
}

// Adjust answers with a new id, because the id in the request can be used only once.
func (s *limiter) Adjust(ctx context.Context, in *weirv1.AdjustRequest) (*weirv1.AdjustResponse, error) {
	lease, err := s.lease(ctx, in.GetLease(), in)
	if err == nil && len(in.GetTokens()) == 0 {
		err = badField("tokens", "is missing: what is to be spent more, or given back if negative")
	}
	if err == nil {
		err = lease.Adjust(ctx, in.GetTokens())
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &weirv1.AdjustResponse{Lease: idOf(&lease), Expires: timestamppb.New(lease.Expires())}, nil
}

// Commit writes nothing, because a lease counts as committed unless it is rolled back. It lets a client be explicit,
// and verify its id.
func (s *limiter) Commit(ctx context.Context, in *weirv1.CommitRequest) (*weirv1.CommitResponse, error) {
	lease, err := s.lease(ctx, in.GetLease(), in)
	if err == nil {
		err = lease.Commit(ctx)
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &weirv1.CommitResponse{}, nil
}

// Rollback returns the tokens that the lease holds.
func (s *limiter) Rollback(ctx context.Context, in *weirv1.RollbackRequest) (*weirv1.RollbackResponse, error) {
	lease, err := s.lease(ctx, in.GetLease(), in)
	if err == nil {
		err = lease.Rollback(ctx)
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &weirv1.RollbackResponse{}, nil
}
