package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// maxHold is for how long a lease can renew slots and give them back, unless leases last longer.
const maxHold = time.Hour

// Hold makes a lease of the limiter into one that a client can hold.
func (d *Decider) Hold(lim *weir.Limiter, lease *weir.Lease) Lease {
	at := lease.Decision().At
	if at.IsZero() {
		at = time.Now()
	}
	ttl := d.LeaseTTL
	if lease.Slots() != nil {
		ttl = max(ttl, maxHold)
	}
	expires := at.Add(ttl).UTC().Truncate(time.Millisecond)
	held := lease.Token(leaseid.Unique(), expires)
	return Lease{lease, leaseid.Lease{Namespace: lim.Namespace(), Held: held}, d.Signer()}
}

// Lease returns the lease with an ID, when it is the caller's turn to change it. Every principal that may acquire from
// its entity and resource may change it, whoever has acquired it. For all others, it does not exist.
func (d *Decider) Lease(ctx context.Context, c *Caller, id string) (Lease, error) {
	if !c.Has(auth.Acquire) {
		return Lease{}, Refused(c.Principal, auth.NoRole, auth.Acquire, false)
	}
	signer := d.Signer()
	signed, ok := signer.Parse(id)
	if !ok {
		return Lease{}, ErrNoLease
	}
	if lacks := c.Lacks(auth.Access{
		Role: auth.Acquire, Namespace: signed.Namespace, Entity: signed.Held.Entity, Resource: signed.Held.Resource,
	}); lacks != "" {
		return Lease{}, &RefusalError{ErrNoLease, lacks, c.Principal}
	}
	lim := d.Limiter.In(signed.Namespace)
	if err := d.Turn(ctx, c, lim); err != nil {
		return Lease{}, err
	}
	lease, err := lim.LeaseFromToken(ctx, signed.Held)
	return Lease{lease, *signed, signer}, err
}

var (
	adjusts = []auth.Permission{auth.Adjust}
	returns = []auth.Permission{auth.Adjust, auth.Return}
)

// Adjust changes what an entity has spent without a lease, if the caller may, when it is its turn; see
// [weir.Limiter.Adjust].
func (d *Decider) Adjust(ctx context.Context, c *Caller, namespace string, req weir.Request) ([]weir.Balance, error) {
	access := AccessOf(namespace, &req)
	access.Permissions = adjusts
	for _, n := range req.Tokens {
		if n < 0 {
			access.Permissions = returns
		}
	}
	lim, err := d.In(c, access)
	if err != nil {
		return nil, err
	}
	if err := d.Turn(ctx, c, lim); err != nil {
		return nil, err
	}
	return lim.Adjust(ctx, req)
}

// AppendID appends the ID of the lease. An adjusted lease has a new one.
func (l *Lease) AppendID(b []byte) []byte { return l.signer.Append(b, &l.signed) }

// Expires returns when the lease counts as committed.
func (l *Lease) Expires() time.Time { return l.signed.Held.Expires }

// HeldFor returns how long the lease holds its slots unless it is renewed, from when the client sent its request. It is
// 0 if it holds none.
func (l *Lease) HeldFor() (d time.Duration) {
	for i := range l.signed.Held.Charges {
		if h := l.signed.Held.Charges[i].Hold; h != nil && (d == 0 || h.Valid < d) {
			d = max(1, h.Valid)
		}
	}
	return d
}

// Renew renews the lease's slots. The lease then has a new ID, and the old one can still give them back. If a slot is
// lost, the error is [ErrSlotLost].
func (l *Lease) Renew(ctx context.Context) error {
	if time.Now().After(l.Expires()) {
		return ErrExpired
	}
	if l.HeldFor() == 0 {
		return &weir.ConfigError{Field: "lease", Reason: "holds no slots: there is nothing to renew"}
	}
	_, err := l.lease.Renew(ctx)
	if errors.Is(err, weir.ErrSlotLost) {
		return ErrSlotLost
	}
	if err == nil {
		l.signed.Held = l.lease.Token("", time.Time{})
	}
	return err
}

// NoSlots returns an error, and takes all leases back, if one holds slots: for an answer without leases, by which
// nobody can give slots back.
func NoSlots(ctx context.Context, leases ...*weir.Lease) error {
	if !slices.ContainsFunc(leases, func(l *weir.Lease) bool { return l.Slots() != nil }) {
		return nil
	}
	TakeBack(ctx, leases...)
	return errSlots
}

// TakeBack rolls leases back whose IDs nobody gets. They may be nil.
func TakeBack(ctx context.Context, leases ...*weir.Lease) {
	for _, lease := range leases {
		if lease != nil {
			_ = lease.Rollback(ctx) // otherwise slots come back by themselves
		}
	}
}

var errSlots = fmt.Errorf("%w: %w", &weir.ConfigError{
	Field: "brief", Reason: "must be left out: a limit of slots applies, which needs a lease to give them back",
}, weir.ErrSlotsNeedLease)

// Degraded reports whether the lease was granted without the store.
func (l *Lease) Degraded() bool { return l.lease.Degraded() }

// Adjust spends more tokens, or returns some. The lease then has a new ID, because each can be used only once; also
// after a [weir.DebtError].
func (l *Lease) Adjust(ctx context.Context, delta weir.Tokens) ([]weir.Balance, error) {
	left, err := l.lease.Adjust(ctx, delta)
	if err == nil || errors.Is(err, weir.ErrMaxDebt) {
		l.signed.Held = l.lease.Token("", time.Time{})
	}
	return left, err
}

// Commit gives slots back. If the lease holds none, it writes nothing, because a lease counts as committed unless it is
// rolled back: it lets a client be explicit, and verify its ID.
func (l *Lease) Commit(ctx context.Context) error {
	if time.Now().After(l.Expires()) { // the store would refuse it, too, but does not have to
		return ErrExpired
	}
	return l.lease.Commit(ctx)
}

// Rollback returns the tokens that the lease holds.
func (l *Lease) Rollback(ctx context.Context) error { return l.lease.Rollback(ctx) }
