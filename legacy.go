package weir

import (
	"context"

	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// This file holds what leaves the package, or is used only by what leaves it.

// MaxDepth is the maximum number of entities in a chain: an entity, its parent, and so on.
const MaxDepth = policy.MaxDepth

// core is what manages limits.
type core struct {
	store    store.Store
	usage    store.Usage
	policies *policy.Namespace
}

type space struct{ id string }

func (l *Limiter) space(ctx context.Context, _ int64) (space, error) {
	id, err := l.namespaceID(ctx)
	return space{id}, err
}

func (l *Limiter) admin() *core { return &core{l.store, parts.Of(l).Usage, l.policies} }

func (c *core) elapsed() int64 { return 0 }

func (c *core) commit(ctx context.Context, space string, events []event, writes ...store.Write) error {
	all := make([]record.Event, len(events))
	for i, e := range events {
		all[i] = record.Event{Action: e.action, Subject: e.subject, Before: e.before, After: e.after}
	}
	return c.policies.Commit(ctx, space, all, writes...)
}

func (c *core) retry(ctx context.Context, what string, try func() error) error {
	return policy.Retry(ctx, what, try)
}

func (c *core) call(ctx context.Context, _ string, f func(context.Context) error) error {
	return f(ctx)
}

// get reads one record. If it does not exist, its Version is 0.
func (c *core) get(ctx context.Context, key store.Key) (store.Record, error) {
	rs, err := c.getAll(ctx, key)
	if err != nil {
		return store.Record{}, err
	}
	return rs[0], nil
}

func (c *core) getAll(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	got, err := c.store.Get(ctx, keys...)
	return got.Records, err
}

func (c *core) list(ctx context.Context, q store.Query) (store.Page, error) {
	if q.Max < 0 {
		return store.Page{}, configErr("max", "must not be negative: %d", q.Max)
	}
	return c.store.List(ctx, q)
}

// firstOf returns the first of joined errors.
func firstOf(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()[0]
	}
	return err
}
