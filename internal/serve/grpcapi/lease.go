package grpcapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/leaseid"
)

// resume returns the lease with the given id.
func (s *Server) resume(ctx context.Context, id string) (*weir.Lease, *leaseid.Lease, error) {
	p := auth.From(ctx)
	if !p.Has(auth.Acquire) {
		return nil, nil, errForbidden
	}
	l, ok := s.signer.Parse(id)
	if !ok || !p.May(auth.Acquire, l.Namespace) { // treat another principal's lease as unknown
		return nil, nil, errNoLease
	}
	lease, err := s.cfg.Limiter.In(l.Namespace).Resume(ctx, l.Held)
	return lease, l, err
}

// Adjust answers with a new id, because the id in the request can be used only once.
func (s *Server) Adjust(ctx context.Context, in *weirv1.AdjustRequest) (*weirv1.AdjustResponse, error) {
	lease, l, err := s.resume(ctx, in.GetLease())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if err := understood(in); err != nil {
		return nil, s.fail(ctx, err)
	}
	if len(in.GetTokens()) == 0 {
		return nil, s.fail(ctx, badField("tokens", "is missing: what is to be spent more, or given back if negative"))
	}
	if err := lease.Adjust(ctx, in.GetTokens()); err != nil {
		return nil, s.fail(ctx, err)
	}
	l.Held = lease.Held()
	return &weirv1.AdjustResponse{Lease: s.idOf(l), Expires: timestamppb.New(l.Held.Expires)}, nil
}

// Commit writes nothing, because a lease counts as committed unless it is rolled back. It lets a client be explicit, and
// verify its id.
func (s *Server) Commit(ctx context.Context, in *weirv1.CommitRequest) (*weirv1.CommitResponse, error) {
	lease, l, err := s.resume(ctx, in.GetLease())
	if err == nil {
		err = understood(in)
	}
	if err == nil && time.Now().After(l.Held.Expires) { // the store would say the same, but is not asked
		err = errGone
	}
	if err == nil {
		err = lease.Commit(ctx)
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &weirv1.CommitResponse{}, nil
}

// Rollback returns the tokens that the lease holds.
func (s *Server) Rollback(ctx context.Context, in *weirv1.RollbackRequest) (*weirv1.RollbackResponse, error) {
	lease, _, err := s.resume(ctx, in.GetLease())
	if err == nil {
		err = understood(in)
	}
	if err == nil {
		err = lease.Rollback(ctx)
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &weirv1.RollbackResponse{}, nil
}
