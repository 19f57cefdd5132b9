package weir

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// LeaseToken is a lease in a form that can leave the process, for a server to hand to its client. Whoever has it can
// give its tokens back, so a server must authenticate it when it comes back.
type LeaseToken struct {
	ID        string        `json:"id"`        // unique per lease
	Seq       int           `json:"seq"`       // number of adjustments; each value is valid for one change
	Expires   time.Time     `json:"expires"`   // after this, the lease counts as committed
	Namespace string        `json:"namespace"` // the opaque id
	Entity    string        `json:"entity"`
	Resource  string        `json:"resource"`
	Charges   []TokenCharge `json:"charges"` // every limit that applied
	// Local is set if the tokens come from one process's share, because the store did not answer.
	Local bool `json:"local,omitempty"`
	// Since is when the first of its tokens were debited, if a limit is strict.
	Since time.Time `json:"since,omitzero"`
}

// TokenCharge is what a lease has spent of one limit of one entity.
type TokenCharge struct {
	Entity   string `json:"entity"`
	Resource string `json:"resource,omitempty"` // "" for the lease's; otherwise its group or the total
	Limit    Limit  `json:"limit"`
	Override bool   `json:"override,omitempty"`
	LeftOut  bool   `json:"left_out,omitempty"` // in shadow, and would have refused: nothing is spent of it
	Tokens   int64  `json:"tokens"`
	Over     int64  `json:"over,omitempty"`  // tokens that were used, too, but not debited because of [Limit.MaxDebt]
	Epoch    uint64 `json:"epoch,omitempty"` // of a strict limit: that of the limits
	// Hold is by what slots are held, renewed and given back; nil for other limits.
	Hold *store.Hold `json:"hold,omitempty"`
}

// issuedToken is what identifies the token that a lease was issued.
type issuedToken struct {
	id      string
	seq     int
	expires time.Time
}

// change returns the id of the one change for which this sequence number is valid.
func (t *issuedToken) change() string { return t.id + "#" + strconv.Itoa(t.seq) }

// tokenUsedElsewhere reports whether a change was not applied because the token was used elsewhere, or has expired.
func tokenUsedElsewhere(err error) bool {
	return errors.Is(err, ErrSettled) || errors.Is(err, ErrExpired)
}

// Token returns the lease in a form that its caller keeps until expires, under an id that must be unique. If the lease
// has a token already, it keeps that id and expiry, and the arguments are ignored: under two ids, it could be given
// back twice. If the lease has ended, or has no token and id is empty, the result has no ID and cannot be resumed.
//
// The slots of a lease with a token are not renewed any more, and its context ends: whoever has the token renews them,
// by [Lease.Renew].
//
// After an [Lease.Adjust] the token has another Seq, and the previous one is used up. After an Adjust whose outcome is
// unknown it has the same Seq, and is valid only if the change was not applied.
func (le *Lease) Token(id string, expires time.Time) LeaseToken {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.token == nil && id != "" {
		le.token = &issuedToken{id: id, expires: expires}
	}
	if le.token != nil {
		le.slots.Leave(le.debits)
	}
	t := LeaseToken{
		Entity: le.policy.Entity, Resource: le.policy.Resource,
		Local: le.degraded != nil && le.degraded.local,
	}
	if le.token != nil && le.ended == nil {
		t.ID, t.Seq, t.Expires = le.token.id, le.token.seq, le.token.expires
	}
	for i := range le.debits {
		t.Namespace = le.debits[i].Bucket.Namespace
		t.Charges = slices.Grow(t.Charges, len(le.debits[i].Charges))
		for _, c := range le.debits[i].Charges {
			tc := TokenCharge{
				Entity: le.debits[i].Bucket.Entity, Limit: Limit(record.Of(c)), Override: c.Limit.Override,
				LeftOut: c.Shadow, Tokens: c.Amount / 1000, Hold: c.Hold,
			}
			if tc.Resource = le.debits[i].Bucket.Resource; tc.Resource == t.Resource {
				tc.Resource = ""
			}
			over := le.over[held.LimitOf{Entity: tc.Entity, Limit: c.Limit}]
			tc.Over = (c.Amount+over)/1000 - tc.Tokens
			if tc.Limit.Strict = c.StrictReturns(); tc.Limit.Strict { // also of a quota that is not set to be
				t.Since, tc.Epoch = le.since, le.debits[i].Epoch
			}
			t.Charges = append(t.Charges, tc)
		}
	}
	return t
}

// Renew renews the slots of a lease that came from a token; those of others are renewed by themselves. They then count
// until the returned time, by the clocks of all processes: at the latest, renew them 4 s before. The lease has another
// token then, and the former one can still give the slots back. If a slot is lost, the error is [ErrSlotLost]. After
// any other error, nothing has changed, and Renew may be repeated.
func (le *Lease) Renew(ctx context.Context) (until time.Time, err error) {
	le.mu.Lock()
	defer le.mu.Unlock()
	debits := held.Change(le.debits, held.Taken)
	if le.ended != nil || len(debits) == 0 {
		return until, le.ended
	}
	out, err := le.lim.store.Settle(ctx, store.Settle{Debits: debits})
	if err == nil {
		until, err = held.Renewed(le.debits, debits, out.Levels)
	}
	return until, err
}

// LeaseFromToken returns the lease of a token. Its Adjust and Rollback are applied at most once, across all processes
// on the store: they return [ErrSettled] if this Seq was used before, and [ErrExpired] after Expires. Its Commit does
// no I/O and is not recorded, unless the lease holds slots, which it gives back once. LeaseFromToken does no I/O for
// the lease, and does not check whether the limits have changed since.
func (l *Limiter) LeaseFromToken(ctx context.Context, t LeaseToken) (*Lease, error) {
	id, err := l.policies.ID(ctx)
	if err != nil {
		return nil, publicError(err)
	}
	if t.Namespace != "" && t.Namespace != id {
		return nil, configErr("lease", "belongs to another namespace")
	}
	if t.ID == "" || t.Expires.IsZero() || t.Seq < 0 {
		return nil, configErr("lease", "has no id, no expiry or a bad seq")
	}
	le := &Lease{
		lim: l, ctx: ctx, token: &issuedToken{t.ID, t.Seq, t.Expires}, since: t.Since,
		policy: &policy.Policy{NamespaceID: id, Entity: t.Entity, Resource: t.Resource, Share: new(policy.Share)},
	}
	if len(t.Charges) == 0 {
		le.degraded = &degradation{reason: "nothing was spent"}
	} else if t.Local {
		le.degraded = &degradation{reason: "the store did not answer", local: true, elsewhere: true}
	}
	for _, c := range t.Charges {
		k := held.Kept{
			Bucket: store.Bucket{Namespace: id, Entity: c.Entity, Resource: cmp.Or(c.Resource, t.Resource)},
			Limit:  c.Limit.record(), Override: c.Override, LeftOut: c.LeftOut,
			Tokens: c.Tokens, Over: c.Over, Epoch: c.Epoch, Hold: c.Hold,
		}
		if le.debits, err = k.Add(le.debits, &le.over); err != nil {
			return nil, publicError(err)
		}
	}
	return le, nil
}
