package policy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Share is the part of a namespace's limits that this process's cell has: Num out of Den, both of the amount and of the
// burst, each rounded down. The zero value is no share at all.
type Share struct {
	Num, Den int64 // 0 ≤ Num ≤ Den; if Num is 0, no request is admitted
	// Epoch increases with each change of any share in the cell, and is the same in all of the cell's processes. A
	// bucket follows the newest.
	Epoch uint64
	// Least keeps at least one token in a burst. The bursts of all cells together may then exceed that of the limit, by
	// less than a token for each cell.
	Least bool
	// Until is the time up to which the share is known to be valid; the zero time means for ever. After it, requests
	// are decided as if the store did not answer, until there is a share with a later time.
	Until time.Time
}

// Shares returns the part of the limits that a cell has.
type Shares interface {
	// Share returns the part of a namespace's limits, by its name. It is called when limits are looked up, and must be
	// fast; see [Resolver.SharesChanged].
	Share(namespace string) Share
	// Stale reports that a bucket follows newer limits than a decision that used a share of this epoch, so that there
	// may be a newer share. A share that Stale finds before it returns is used at once. It must end when ctx does.
	Stale(ctx context.Context, epoch uint64)
}

// Whole is the share of a process that shares limits with no other cell.
var Whole = Share{Num: 1, Den: 1}

// Errors of a policy whose share allows no decision.
var (
	ErrNoShare      = errors.New("the cell has no share of the limits yet")
	ErrShareExpired = errors.New("the cell's share of the limits has expired")
)

// shareRetry is how soon to read a share again that has expired.
const shareRetry = 100 * time.Millisecond

// usable returns the error if the policy's share allows no decision: [ErrNoShare] or [ErrShareExpired].
func (p *Policy) usable() error {
	switch {
	case p.Share.Num == 0:
		return NoShare()
	case !p.Share.Until.IsZero() && clock.Left(p.Share.Until, time.Now()) <= 0:
		return shareExpired()
	}
	return nil
}

// NoShare returns the [ErrNoShare] of a decision.
func NoShare() error {
	return &store.Error{Op: "take", Err: ErrNoShare, Hint: "the cell just joined or is drained: see weir cell shares"}
}

func shareExpired() error {
	return &store.Error{Op: "take", Err: ErrShareExpired, Hint: "no answer from the cell's store: see weir serve's log"}
}

// Late returns an error if a decision that takes up to within came so late that another cell may already have this
// cell's part of the limits, because the process was stopped, or the machine suspended, after it had checked its share.
// Such a decision does not count.
func (sh Share) Late(within time.Duration) error {
	if sh.Until.IsZero() || clock.Left(sh.Until, time.Now()) > -within {
		return nil
	}
	return shareExpired()
}

// Step returns the largest of one half, one quarter and so on that is at most the share. A limit that a request brings
// is a different limit once its parameters change: it starts afresh and needs room. A share that moves must not cause
// that each time.
func (sh Share) Step() Share {
	if sh.Num == 0 || sh.Num == sh.Den {
		return sh
	}
	den := int64(1)
	for rest := sh.Den; rest > sh.Num && den < 1<<62; den *= 2 {
		rest -= rest / 2
	}
	sh.Num, sh.Den = 1, den
	return sh
}

// Of returns the share's part of a limit. A part that rounds to nothing admits no token.
func (sh Share) Of(l store.Limit) store.Limit {
	if sh.Num == sh.Den {
		return l
	}
	burst := clock.MulDivFloor(l.Burst, sh.Num, sh.Den)
	if sh.Least {
		burst = max(burst, min(l.Burst, 1000))
	}
	if l.Amount = clock.MulDivFloor(l.Amount, sh.Num, sh.Den); l.Amount == 0 {
		l.Amount = 1
		if !sh.Least {
			burst = 1
		}
	}
	l.Burst = max(burst, 1)
	return l
}

// divides returns a [*record.FieldError] if the share is a part, and a limit is no rate. A part of a quota that moves
// with the load would admit several quotas in one window, and a balance is in one store.
func (sh Share) divides(limits []store.Limit) error {
	if sh.Num == sh.Den || sh.Num == 0 {
		return nil
	}
	for i := range limits {
		const alone = "give one cell all of the namespace's limits (weir cell drain the others)"
		switch l := &limits[i]; l.Params().Kind() {
		case clock.Quota, clock.Slots:
			return record.Invalid("limit "+l.Name, "is no rate, and cells cannot share it: "+alone)
		case clock.Credits:
			return record.Invalid("limit "+l.Name, "is a balance, which belongs to one cell: "+alone)
		case clock.Rate:
		}
	}
	return nil
}

// terms returns the share's part of terms.
func (sh Share) terms(ts []record.Terms) []record.Terms {
	if sh.Num == sh.Den || ts == nil {
		return ts
	}
	parts := slices.Clone(ts)
	for i := range parts {
		if most := &parts[i].MaxDebt; *most > 0 {
			*most = max(1, clock.MulDivFloor(*most, sh.Num, sh.Den))
		}
	}
	return parts
}

// scaledSets caches the parts of sets of limits, so that policies that have a set in common also have its part in
// common.
type scaledSets struct {
	mu sync.Mutex
	m  map[*limitSet]*scaledSet
}

type scaledSet struct {
	num, den int64
	least    bool
	limitSet
}

// maxParts bounds the cached parts; beyond it, they are made anew.
const maxParts = 1 << 14

// of returns the share's part of a set of limits.
func (ps *scaledSets) of(sh *Share, set *limitSet) *limitSet {
	if sh.Num == sh.Den {
		return set
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.m[set]; p != nil && p.num == sh.Num && p.den == sh.Den && p.least == sh.Least {
		return &p.limitSet
	}
	p := &scaledSet{sh.Num, sh.Den, sh.Least, *set}
	p.Limits, p.terms = make([]store.Limit, len(set.Limits)), sh.terms(set.terms)
	for i, l := range set.Limits {
		p.Limits[i] = sh.Of(l)
	}
	p.charge()
	if ps.m == nil || len(ps.m) >= maxParts {
		ps.m = make(map[*limitSet]*scaledSet)
	}
	ps.m[set] = p
	return &p.limitSet
}
