package answer

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/weirlimits/weir"
)

// Charge is what a request was charged: its lease, and the tokens that the lease holds. It is safe for concurrent use.
type Charge struct {
	lease *weir.Lease

	mu     sync.Mutex
	tokens weir.Tokens
	mine   bool // tokens is our own copy of the map
}

// Hold sets the lease and the tokens that were requested for it. Call it before anything else.
func (c *Charge) Hold(lease *weir.Lease, tokens weir.Tokens) { c.lease, c.tokens = lease, tokens }

type chargeKey struct{}

// WithCharge returns a context that carries a charge.
func WithCharge(ctx context.Context, c *Charge) context.Context {
	return context.WithValue(ctx, chargeKey{}, c)
}

// ChargeFrom returns the charge that a context carries, or nil.
func ChargeFrom(ctx context.Context) *Charge {
	c, _ := ctx.Value(chargeKey{}).(*Charge)
	return c
}

// Lease returns the charge's lease, or nil if the charge is nil.
func (c *Charge) Lease() *weir.Lease {
	if c == nil {
		return nil
	}
	return c.lease
}

// SetCost makes the lease hold cost of the limits that it names, regardless of what was requested; other limits stay
// as they are. On a nil charge it does nothing. Errors are those of [weir.Lease.Adjust].
func (c *Charge) SetCost(ctx context.Context, cost weir.Tokens) error {
	if c == nil {
		return nil
	}
	return c.set(cost, func(delta weir.Tokens) error {
		if len(delta) == 0 {
			return nil
		}
		_, err := c.lease.Adjust(ctx, delta)
		return err
	})
}

// set makes the lease hold cost, by a change of what it holds.
func (c *Charge) set(cost weir.Tokens, change func(delta weir.Tokens) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delta := make(weir.Tokens, len(cost))
	for name, n := range cost {
		switch {
		case n < 0:
			return &weir.ConfigError{Field: "tokens." + name, Reason: "a cost must not be negative"}
		case n != c.tokens[name]:
			delta[name] = n - c.tokens[name]
		}
	}
	err := change(delta)
	if _, ok := errors.AsType[*weir.ConfigError](err); ok || ended(err) {
		return err // nothing was changed
	}
	if !c.mine && len(delta) > 0 {
		c.tokens, c.mine = maps.Clone(c.tokens), true
		if c.tokens == nil {
			c.tokens = make(weir.Tokens, len(delta))
		}
	}
	for name, n := range delta {
		// Like the lease: returned tokens count as returned.
		if err == nil || n < 0 || errors.Is(err, weir.ErrMaxDebt) {
			c.tokens[name] += n
		}
	}
	return err
}

// End ends the lease: it rolls back, or sets the cost and commits. If the handler ended the lease itself, End leaves
// it as it is.
func (c *Charge) End(ctx context.Context, rollback bool, cost weir.Tokens) error {
	if rollback {
		if err := c.lease.Rollback(ctx); !ended(err) {
			return err
		}
		return nil
	}
	err := c.set(cost, func(delta weir.Tokens) error {
		_, err := c.lease.Settle(ctx, delta)
		return err
	})
	if ended(err) {
		return nil
	}
	if again := c.lease.Commit(ctx); err == nil { // after a cost that cannot be set
		err = again
	}
	return err
}

// ended reports whether an error means that a lease had already ended.
func ended(err error) bool {
	return errors.Is(err, weir.ErrCommitted) || errors.Is(err, weir.ErrRolledBack)
}
