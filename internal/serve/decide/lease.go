package decide

import (
	"context"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/leaseid"
)

// Lease is an admitted request that its client can still adjust or roll back, by its ID.
type Lease struct {
	lease  *weir.Lease
	signed leaseid.Lease
	signer *leaseid.Signer
}

// Hold makes a lease of the limiter into one that a client can hold.
func (d *Decider) Hold(lim *weir.Limiter, lease *weir.Lease) Lease {
	at := lease.Decision().At
	if at.IsZero() {
		at = time.Now()
	}
	expires := at.Add(d.LeaseTTL).UTC().Truncate(time.Millisecond)
	held := lease.Token(leaseid.Unique(), expires)
	return Lease{lease, leaseid.Lease{Namespace: lim.Namespace(), Held: held}, d.signer}
}

// Lease returns the lease with an ID. For the caller, the lease of another principal does not exist.
func (d *Decider) Lease(ctx context.Context, c *Caller, id string) (Lease, error) {
	if !c.Has(auth.Acquire) {
		return Lease{}, ErrForbidden
	}
	signed, ok := d.signer.Parse(id)
	if !ok || !c.May(auth.Acquire, signed.Namespace) {
		return Lease{}, ErrNoLease
	}
	lease, err := d.Limiter.In(signed.Namespace).LeaseFromToken(ctx, signed.Held)
	return Lease{lease, *signed, d.signer}, err
}

// AppendID appends the ID of the lease. An adjusted lease has a new one.
func (l *Lease) AppendID(b []byte) []byte { return l.signer.Append(b, &l.signed) }

// Entity returns the entity that the lease belongs to.
func (l *Lease) Entity() string { return l.signed.Held.Entity }

// Expires returns when the lease counts as committed.
func (l *Lease) Expires() time.Time { return l.signed.Held.Expires }

// Adjust spends more tokens, or returns some. The lease then has a new ID, because each can be used only once.
func (l *Lease) Adjust(ctx context.Context, delta weir.Tokens) error {
	if err := l.lease.Adjust(ctx, delta); err != nil {
		return err
	}
	l.signed.Held = l.lease.Token("", time.Time{})
	return nil
}

// Commit writes nothing, because a lease counts as committed unless it is rolled back. It lets a client be explicit,
// and verify its ID.
func (l *Lease) Commit(ctx context.Context) error {
	if time.Now().After(l.Expires()) { // the store would refuse it, too, but does not have to
		return ErrExpired
	}
	return l.lease.Commit(ctx)
}

// Rollback returns the tokens that the lease holds.
func (l *Lease) Rollback(ctx context.Context) error { return l.lease.Rollback(ctx) }
