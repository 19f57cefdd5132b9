package weir

import (
	"context"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// commit is the only way in which weir writes to the catalog. The writes and their audit events become visible in one
// atomic step. What this process knows of the records is updated before commit returns, also after an error, because
// the step may have been made.
//
// Only the steps of a longer change come without events: marks, and the sweep of a purge. The end of the change has
// one.
func (c *core) commit(ctx context.Context, space string, events []event, writes ...store.Write) error {
	all := make([]record.Event, len(events))
	for i, e := range events {
		all[i] = record.Event{Action: e.action, Subject: e.subject, Before: e.before, After: e.after}
	}
	return c.commitEvents(ctx, space, all, writes...)
}

func (c *core) commitEvents(
	ctx context.Context, space string, events []record.Event, writes ...store.Write,
) error {
	for i := range events {
		writes = append(writes, c.audit.Write(ctx, space, &events[i]))
	}
	err := c.store.Commit(ctx, writes...)
	c.follow(writes, err)
	return err
}

// known returns the space of a namespace if it was ever used.
func (c *core) known(id string) *space {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spaces[id]
}

// retry repeats a change that starts with a read, until nobody else changes the same records in between.
func (c *core) retry(ctx context.Context, what string, try func() error) error {
	return policy.Retry(ctx, what, try)
}

// call makes a call to the store, which bounds and observes it itself.
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
