package weir

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy"
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
}

// TokenCharge is what a lease has spent of one limit of one entity.
type TokenCharge struct {
	Entity   string `json:"entity"`
	Limit    Limit  `json:"limit"`
	Override bool   `json:"override,omitempty"`
	LeftOut  bool   `json:"left_out,omitempty"` // in shadow, and would have refused: nothing is spent of it
	Tokens   int64  `json:"tokens"`
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
// After an [Lease.Adjust] the token has another Seq, and the previous one is used up. After an Adjust whose outcome is
// unknown it has the same Seq, and is valid only if the change was not applied.
func (le *Lease) Token(id string, expires time.Time) LeaseToken {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.token == nil && id != "" {
		le.token = &issuedToken{id: id, expires: expires}
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
			t.Charges = append(t.Charges, TokenCharge{
				Entity: le.debits[i].Bucket.Entity, Limit: limitOf(c.Limit), Override: c.Limit.Override,
				LeftOut: c.Shadow, Tokens: c.Amount / 1000,
			})
		}
	}
	return t
}

// LeaseFromToken returns the lease of a token. Its Adjust and Rollback are applied at most once, across all processes
// on the store: they return [ErrSettled] if this Seq was used before, and [ErrExpired] after Expires. Its Commit does
// no I/O and is not recorded. LeaseFromToken does no I/O for the lease, and does not check whether the limits have
// changed since.
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
		lim: l, policy: &policy.Policy{NamespaceID: id, Entity: t.Entity, Resource: t.Resource},
		token: &issuedToken{t.ID, t.Seq, t.Expires},
	}
	if len(t.Charges) == 0 {
		le.degraded = &degradation{reason: "nothing was spent"}
	} else if t.Local {
		le.degraded = &degradation{reason: "the store did not answer", local: true, elsewhere: true}
	}
	for _, c := range t.Charges {
		lim, err := c.Limit.record().Validate()
		if err != nil {
			return nil, publicError(err)
		}
		if c.Tokens < 0 || c.Tokens > clock.MaxLevel/1000 || c.LeftOut && c.Tokens > 0 {
			return nil, configErr("lease", "has a bad amount of %s: %d", lim.Name, c.Tokens)
		}
		b := store.Bucket{Namespace: id, Entity: c.Entity, Resource: t.Resource}
		at := slices.IndexFunc(le.debits, func(d store.Debit) bool { return d.Bucket == b })
		if at < 0 {
			at = len(le.debits)
			le.debits = append(le.debits, store.Debit{Bucket: b})
		}
		stored := lim.Stored(c.Override)
		charge := store.Charge{Limit: &stored, Amount: c.Tokens * 1000, Shadow: c.LeftOut}
		le.debits[at].Charges = append(le.debits[at].Charges, charge)
	}
	return le, nil
}
