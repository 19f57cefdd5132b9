package weir

import (
	"context"
	"time"
)

// Unavailable is the former name of [OnUnavailable].
type Unavailable = OnUnavailable

// Held is the former name of [LeaseToken].
type Held = LeaseToken

// HeldCharge is the former name of [TokenCharge].
type HeldCharge = TokenCharge

// The former names of the values of [OnUnavailable].
const (
	UnavailableDefault = OnUnavailableDefault
	Deny               = OnUnavailableDeny
	Allow              = OnUnavailableAllow
	Local              = OnUnavailableLocal
)

// Resume is the former name of [Limiter.LeaseFromToken].
func (l *Limiter) Resume(ctx context.Context, t LeaseToken) (*Lease, error) {
	return l.LeaseFromToken(ctx, t)
}

// Hold is the former name of [Lease.Token].
func (le *Lease) Hold(id string, expires time.Time) LeaseToken { return le.Token(id, expires) }

// Held returns the current form of a lease that has a token.
func (le *Lease) Held() LeaseToken { return le.Token("", time.Time{}) }
