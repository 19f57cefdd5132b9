package weir

import (
	"context"
	"maps"

	"github.com/weirlimits/weir/internal/bucket"
)

// Adjust changes what an entity has spent on a resource, and what its parents have that its chain charges, without a
// lease: for what is learned after the fact, by somebody who did not acquire. Tokens and Requests that are positive are
// debited whether they fit or not: a limit may go into debt, which holds later requests back. Negative ones are given
// back.
//
// Whoever gives back is trusted: no lease says that so much was debited. A bucket is never more than full, so that over
// any stretch of time at most its burst, what was issued and what was given back is admitted. What somebody else
// spent may be given back so; use [Lease.Adjust] where there is a lease.
//
// It is carried out although ctx may have ended, and takes the store's time, once: after another error than a mistake
// in the request an amount that was to be debited may or may not be, and one that was to be given back counts as given.
//
// Errors: [*NoLimitsError], [*ConfigError], store trouble as it is, whatever on_unavailable says.
func (l *Limiter) Adjust(ctx context.Context, req Request) error {
	ctx = context.WithoutCancel(ctx)
	_, p, err := l.plan(ctx, req.Entity, req.Resource, len(req.Limits) == 0)
	if p == nil { // what was used was used, whatever the share
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
			c.Shadow = false // it is to know what was used
			if n < 0 {
				c.Amount = bucket.MaxBurst // as if it held so much
			}
		}
	}
	if req.Requests != 0 && len(delta) == 0 {
		return configErr("requests", "no limit that Tokens does not name counts requests for entity %q on resource %q: it would be named rps, rpm, rph, rpd or requests", req.Entity, req.Resource)
	}
	maps.Copy(delta, req.Tokens)
	return lease.Adjust(ctx, delta)
}
