package admin

import (
	"context"

	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy/prepaid"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// catalog reads and changes records. All services have it in common.
type catalog struct{ parts *parts.Parts }

// space returns the opaque id of the limiter's namespace, unless one of the checks of the request has failed.
func (c catalog) space(ctx context.Context, checks ...error) (string, error) {
	for _, err := range checks {
		if err != nil {
			return "", err
		}
	}
	id, err := c.parts.Policies.ID(ctx)
	return id, publicError(err)
}

// get reads one record. If it does not exist, its Version is 0.
func (c catalog) get(ctx context.Context, key store.Key) (store.Record, error) {
	got, err := c.parts.Store.Get(ctx, key)
	if err != nil {
		return store.Record{}, err
	}
	return got.Records[0], nil
}

// list reads one page of records.
func (c catalog) list(ctx context.Context, q store.Query) (store.Page, error) {
	if err := checkMax(q.Max); err != nil {
		return store.Page{}, err
	}
	return c.parts.Store.List(ctx, q)
}

// keep returns an error if a change would hide a balance.
func (c catalog) keep(ctx context.Context, ch prepaid.Change) error {
	errs, err := prepaid.Hidden(ctx, c.parts.Store, c.parts.Policies, []prepaid.Change{ch})
	if err == nil {
		err = errs[0]
	}
	return publicError(err)
}

// commit writes records of a namespace together with the audit events of the change. Only the steps of a longer change
// have no event: marks, and the records that a purge removes. The end of the change has one.
func (c catalog) commit(ctx context.Context, space string, events []record.Event, writes ...store.Write) error {
	if err := record.CheckNew(writes); err != nil {
		return publicError(err)
	}
	return c.parts.Policies.Commit(ctx, space, events, writes...)
}

// pageOf reads one page of records as items. It leaves out those that of returns nil for.
func pageOf[T any](ctx context.Context, c catalog, q store.Query, of func(store.Record) (*T, error)) (Page[T], error) {
	page, err := c.list(ctx, q)
	if err != nil {
		return Page[T]{}, err
	}
	out := Page[T]{Next: page.Next}
	for _, r := range page.Records {
		item, err := of(r)
		if err != nil {
			return Page[T]{}, err
		}
		if item != nil {
			out.Items = append(out.Items, *item)
		}
	}
	return out, nil
}
