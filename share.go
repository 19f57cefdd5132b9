package weir

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/bucket"
	"github.com/weirlimits/weir/store"
)

// Share is the part of a namespace's limits that this process's cell has: Num of Den, of the amount as of the burst, both
// rounded down. The zero value is nothing.
type Share struct {
	Num, Den int64 // 0 ≤ Num ≤ Den; with Num 0 no request is admitted
	// Epoch is raised with each change of any share in the cell, and is the same for all of the cell's processes: a
	// bucket follows the newest.
	Epoch uint64
	// Least leaves a burst at least one token. The bursts of all cells may then be more than that of the limit, by less
	// than a token for each.
	Least bool
	// Until is how long the share is known to be good; the zero time is for ever. After that it is as if the store did
	// not answer, until there is a share with a later one.
	Until time.Time
}

// Shares knows the part of the limits that a cell has. See [Config.Shares].
type Shares interface {
	// Share returns the part of a namespace's limits, by its name. It is asked when limits are looked up, and must be
	// fast; see [Limiter.SharesChanged].
	Share(namespace string) Share
	// Stale says that a bucket follows newer limits than those of a decision that went by a share of this epoch, so
	// that there may be a newer one. What it finds before it returns is used at once. It ends with ctx.
	Stale(ctx context.Context, epoch uint64)
}

// whole is the share of who shares with nobody.
var whole = Share{Num: 1, Den: 1}

var (
	errNoShare  = errors.New("the cell has no share of the limits yet")
	errOldShare = errors.New("the cell's share of the limits is not known to be good any more")
)

// SharesChanged has [Config.Shares] asked anew. What is under way goes by what was.
func (l *Limiter) SharesChanged() {
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spaces {
		s.changed(change{all: true})
	}
}

// shareOf returns which part of a namespace's limits applies.
func (c *core) shareOf(ctx context.Context, namespace string) Share {
	if c.cfg.Shares == nil {
		return whole
	}
	if stale := c.staleShare.Swap(0); stale > 0 {
		c.cfg.Shares.Stale(ctx, stale)
	}
	return c.lastShare(namespace)
}

// lastShare returns which part applies as far as is known.
func (c *core) lastShare(namespace string) Share {
	if c.cfg.Shares == nil {
		return whole
	}
	sh := c.cfg.Shares.Share(namespace)
	if sh.Den <= 0 || sh.Num < 0 || sh.Num > sh.Den {
		sh.Num, sh.Den = 0, 1
	}
	return sh
}

// shareRetry is how soon a share is asked for again that is not good any more.
const shareRetry = 100 * time.Millisecond

// usable returns why nothing may be decided by the plan's share, if that is so.
func (p *plan) usable() error {
	switch {
	case p.share.Num == 0:
		return &unavailableError{&StoreError{Op: "take", Err: errNoShare, Hint: "the cell has just joined, or is drained: see weir cell shares"}}
	case !p.share.Until.IsZero() && !time.Now().Before(p.share.Until):
		return oldShare()
	}
	return nil
}

func oldShare() error {
	return &StoreError{Op: "take", Err: errOldShare, Hint: "the cell's store does not answer: see the log of weir serve"}
}

// late returns why a decision does not count that is so late that another cell may have had its part of the limits: the
// process was stopped after it had looked at its share.
func (c *core) late(sh Share) error {
	if sh.Until.IsZero() || time.Since(sh.Until) < c.cfg.DecideWithin {
		return nil
	}
	return oldShare()
}

// step returns the largest of a half, a quarter and so on that is at most the share. A limit that a request brings along
// is another one with other parameters, which begins anew and needs room: a share that moves must not move it each time.
func (sh Share) step() Share {
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

// of returns the part of a limit. One of which nothing is left admits no token.
func (sh Share) of(l store.Limit) store.Limit {
	if sh.Num == sh.Den {
		return l
	}
	burst := bucket.MulDivFloor(l.Burst, sh.Num, sh.Den)
	if sh.Least {
		burst = max(burst, min(l.Burst, 1000))
	}
	if l.Amount = bucket.MulDivFloor(l.Amount, sh.Num, sh.Den); l.Amount == 0 {
		l.Amount = 1
		if !sh.Least {
			burst = 1
		}
	}
	l.Burst = max(burst, 1)
	return l
}

// parts remembers the parts of sets of limits, so that the plans that share a set share its part as well.
type parts struct {
	mu sync.Mutex
	m  map[*store.Limit]*part // by the first limit of the set
}

type part struct {
	num, den int64
	least    bool
	limits   []store.Limit
	one      *store.Charge
}

// maxParts bounds them; past it they are made anew.
const maxParts = 1 << 14

// of returns a set's part, and what Allow charges of it.
func (ps *parts) of(sh Share, limits []store.Limit, one *store.Charge) ([]store.Limit, *store.Charge) {
	if sh.Num == sh.Den {
		return limits, one
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.m[&limits[0]]; p != nil && p.num == sh.Num && p.den == sh.Den && p.least == sh.Least && len(p.limits) == len(limits) {
		return p.limits, p.one
	}
	p := &part{num: sh.Num, den: sh.Den, least: sh.Least, limits: make([]store.Limit, len(limits))}
	for i, l := range limits {
		p.limits[i] = sh.of(l)
	}
	p.one = oneCharge(p.limits)
	if ps.m == nil || len(ps.m) >= maxParts {
		ps.m = make(map[*store.Limit]*part)
	}
	ps.m[&limits[0]] = p
	return p.limits, p.one
}
