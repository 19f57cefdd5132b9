package grpcapi

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/auth"
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
		err = errNoTokens
	}
	var left []weir.Balance
	if err == nil {
		left, err = lease.Adjust(ctx, in.GetTokens())
	}
	if err != nil {
		f := s.fail(ctx, err)
		if errors.Is(err, weir.ErrMaxDebt) {
			f.adjusted = adjusted(&lease, left)
		}
		return nil, f
	}
	return adjusted(&lease, left), nil
}

func adjusted(lease *decide.Lease, left []weir.Balance) *weirv1.AdjustResponse {
	return &weirv1.AdjustResponse{
		Lease: idOf(lease), Expires: timestamppb.New(lease.Expires()), Degraded: lease.Degraded(),
		Limits: balancesOf(left), HeldFor: waitOf(lease.HeldFor()),
	}
}

func balancesOf(left []weir.Balance) (all []*weirv1.Balance) {
	for i := range left {
		l := &left[i]
		all = append(all, &weirv1.Balance{
			Entity: l.Entity, Resource: l.Resource, Limit: l.Limit, Available: l.Available,
			RetryAfter: waitOf(l.RetryAfter),
		})
	}
	return all
}

// AdjustEntity changes what an entity has spent without a lease.
func (s *limiter) AdjustEntity(
	ctx context.Context, in *weirv1.AdjustEntityRequest,
) (*weirv1.AdjustEntityResponse, error) {
	err := understood(in)
	if err == nil && len(in.GetTokens()) == 0 {
		err = errNoTokens
	}
	var left []weir.Balance
	if err == nil {
		left, err = s.decide.Adjust(ctx, decide.CallerOf(ctx), in.GetNamespace(), weir.Request{
			Entity: in.GetEntity(), Resource: in.GetResource(), Tokens: in.GetTokens(), ID: in.GetId(),
		})
	}
	out := &weirv1.AdjustEntityResponse{Limits: balancesOf(left)}
	if err != nil {
		f := s.fail(ctx, err)
		if errors.Is(err, weir.ErrMaxDebt) {
			f.adjusted = out
		}
		return nil, f
	}
	return out, nil
}

var errNoTokens = badField("tokens", "is missing: what is to be spent more, or given back if negative")

// Renew answers with a new id, and for how long it holds the slots.
func (s *limiter) Renew(ctx context.Context, in *weirv1.RenewRequest) (*weirv1.RenewResponse, error) {
	lease, err := s.lease(ctx, in.GetLease(), in)
	if err == nil {
		err = lease.Renew(ctx)
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &weirv1.RenewResponse{
		Lease: idOf(&lease), Expires: timestamppb.New(lease.Expires()), HeldFor: waitOf(lease.HeldFor()),
	}, nil
}

// Commit gives slots back. Without any, it writes nothing, because a lease counts as committed unless it is rolled
// back: it lets a client be explicit, and verify its id.
func (s *limiter) Commit(ctx context.Context, in *weirv1.CommitRequest) (*weirv1.CommitResponse, error) {
	return &weirv1.CommitResponse{}, s.settle(ctx, in.GetLease(), in, (*decide.Lease).Commit)
}

// Rollback returns the tokens that the lease holds.
func (s *limiter) Rollback(ctx context.Context, in *weirv1.RollbackRequest) (*weirv1.RollbackResponse, error) {
	return &weirv1.RollbackResponse{}, s.settle(ctx, in.GetLease(), in, (*decide.Lease).Rollback)
}

func (s *limiter) settle(
	ctx context.Context, id string, in proto.Message, how func(*decide.Lease, context.Context) error,
) error {
	lease, err := s.lease(ctx, id, in)
	if err == nil {
		err = how(&lease, ctx)
	}
	if err != nil {
		return s.fail(ctx, err)
	}
	return nil
}

// on returns the limiter for a request about balances, when it is the caller's turn.
func (s *limiter) on(ctx context.Context, in reader, role auth.Role) (*weir.Limiter, error) {
	access := reading(in)
	access.Role = role
	lim, err := s.in(ctx, access)
	if err == nil {
		err = s.decide.Turn(ctx, decide.CallerOf(ctx), lim)
	}
	return lim, err
}

// AddCredits tops up a balance.
func (s *limiter) AddCredits(
	ctx context.Context, in *weirv1.AddCreditsRequest,
) (*weirv1.AddCreditsResponse, error) {
	if err := understood(in); err != nil {
		return nil, s.fail(ctx, err)
	}
	lim, err := s.on(ctx, in, auth.Credit)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	by := admin.WithSource(admin.WithPrincipal(ctx, decide.CallerOf(ctx).Audit("grpc")), From(ctx))
	b, repeated, err := admin.New(lim).Balances.Add(by, admin.Credit{
		BalanceKey: admin.BalanceKey{Entity: in.GetEntity(), Resource: in.GetResource(), Limit: in.GetLimit()},
		Amount:     in.GetAmount(), ID: in.GetId(),
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &weirv1.AddCreditsResponse{Balance: prepaidOf(&b), Repeated: repeated}, nil
}

// ListBalances returns what an entity has left of prepaid credits.
func (s *limiter) ListBalances(
	ctx context.Context, in *weirv1.ListBalancesRequest,
) (*weirv1.ListBalancesResponse, error) {
	if err := understood(in); err != nil {
		return nil, s.fail(ctx, err)
	}
	lim, err := s.on(ctx, in, auth.Read)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	out := &weirv1.ListBalancesResponse{}
	q := admin.BalanceQuery{BalanceKey: admin.BalanceKey{
		Entity: in.GetEntity(), Resource: in.GetResource(), Limit: in.GetLimit(),
	}, Max: 1000}
	for {
		page, err := admin.New(lim).Balances.List(ctx, q)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		for i := range page.Items {
			out.Balances = append(out.Balances, prepaidOf(&page.Items[i]))
		}
		if q.After = page.Next; q.After == "" {
			return out, nil
		}
	}
}

func prepaidOf(b *admin.Balance) *weirv1.PrepaidBalance {
	return &weirv1.PrepaidBalance{
		Entity: b.Entity, Resource: b.Resource, Limit: b.Limit, Available: b.Available,
		Credited: b.Credited, Debited: b.Debited, Returned: b.Returned, Removed: b.Removed,
	}
}
