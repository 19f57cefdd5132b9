package weir

import (
	"context"
	"maps"

	"github.com/weirlimits/weir/internal/bucket"
)

// Adjust changes what an entity has spent on a resource, and what the parents that its chain charges have spent,
// without a lease: for a caller that did not acquire the tokens but learns of the usage afterwards. Positive Tokens and
// Requests are debited whether they fit or not: a limit may go into debt, which holds later requests back. Negative
// ones are given back.
//
// Adjust trusts the caller: no lease proves that the returned tokens were ever debited. A bucket is never more than
// full, so over any stretch of time it admits at most its burst, the tokens issued and the tokens given back. It can
// give back tokens that another caller spent; if there is a lease, use [Lease.Adjust].
//
// Adjust runs to completion even if ctx has ended. The change is one call to the store, bounded by
// [Config.StoreTimeout]. After an error other than a mistake in the request, an amount to be debited may or may not have
// been debited, and an amount given back counts as given back.
//
// Errors: [*NoLimitsError], [*ConfigError], [ErrNotFound] if the namespace does not exist, and store errors, regardless
// of on_unavailable.
func (l *Limiter) Adjust(ctx context.Context, req Request) error {
	ctx = context.WithoutCancel(ctx)
	_, p, err := l.plan(ctx, req.Entity, req.Resource, len(req.Limits) == 0)
	if p == nil { // usage is booked even if the share has expired
		return err
	}
	lease, err := l.prepare(p, &Request{Limits: req.Limits})
	if err != nil {
		return err
	}
	delta := make(Tokens, len(req.Tokens)+1)
	for i := range lease.debits {
		for j := range lease.debits[i].Charges {
			c := &lease.debits[i].Charges[j]
			n, named := req.Tokens[c.Limit.Name]
			if !named && countsRequests(c.Limit.Name) {
				if n = req.Requests; n != 0 {
					delta[c.Limit.Name] = n
				}
			}
			c.Shadow = false // usage is booked in shadow, too
			if n < 0 {
				c.Amount = bucket.MaxBurst // allows a return up to this amount
			}
		}
	}
	if req.Requests != 0 && len(delta) == 0 {
		return configErr("requests", "entity %q on resource %q has no limit that counts requests (named rps, rpm, rph, rpd or requests), apart from those in Tokens", req.Entity, req.Resource)
	}
	maps.Copy(delta, req.Tokens)
	return lease.Adjust(ctx, delta)
}
