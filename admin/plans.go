package admin

import (
	"context"
	"strconv"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/plans"
	"github.com/weirlimits/weir/store"
)

// Plans lists and deletes plans: limits that many entities have in common. [Limits.Set] with a [Scope] that has a Plan
// creates it; an entity names it ([Entity]), and so do its descendants that name none.
//
// A change of a plan writes one record, however many entities are on it. Requests of all of them follow within
// [weir.Config.CacheTTL], or at their bucket's next debit.
type Plans struct{ catalog }

// PlanQuery selects a page of plans.
type PlanQuery struct {
	After string // Next of the previous page
	Max   int    // maximum number of plans; 0 means 100, more than 1,000 means 1,000
}

// List returns the plans, ordered by id, each with its default limits, which may be empty.
func (s *Plans) List(ctx context.Context, query PlanQuery) (Page[ScopedLimits], error) {
	space, err := s.space(ctx)
	if err != nil {
		return Page[ScopedLimits]{}, err
	}
	q := store.Query{
		Namespace: space, Kind: store.KindPlanLimits, Sub: weir.DefaultResource, After: query.After, Max: query.Max,
	}
	return pageOf(ctx, s.catalog, q, func(r store.Record) (*ScopedLimits, error) {
		sl, err := scopedLimits(r)
		return &sl, err
	})
}

// Delete deletes a plan with its limits. It takes several steps; if it is interrupted, delete the plan again to finish.
//
// Errors: [weir.ErrNotFound]; [*weir.ConfigError] if entities name the plan, with some of them.
func (s *Plans) Delete(ctx context.Context, id string) error {
	space, err := s.space(ctx, checkID("plan", id))
	if err != nil {
		return err
	}
	return policy.Retry(ctx, "plan "+strconv.Quote(id), func() error {
		p, err := plans.Read(ctx, s.parts.Store, space, id)
		if err == nil && p.Version == 0 {
			return notFound("plan", id)
		}
		if err != nil {
			return err
		}
		return publicError(plans.Delete(ctx, s.parts.Policies, s.parts.Store, &p, limitsRemoved))
	})
}

// beside returns what a change of a scope's record must assert and do beside it: that a plan has default limits.
func (c catalog) beside(ctx context.Context, space string, sc Scope) ([]store.Write, error) {
	if sc.Plan == "" {
		return nil, nil
	}
	p, err := plans.Read(ctx, c.parts.Store, space, sc.Plan)
	if err != nil {
		return nil, err
	}
	writes, err := p.Ensure(sc.Resource == "")
	return writes, publicError(err)
}

// named returns what a commit must assert and do, so that an entity is found by its plan; from is its current plan.
func (c catalog) named(ctx context.Context, n *node, from string) ([]store.Write, error) {
	writes, err := plans.Name(ctx, c.parts.Store, n.Key, from, n.Rec.Plan)
	return writes, publicError(err)
}
