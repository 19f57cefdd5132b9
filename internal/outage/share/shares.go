// Package share decides over this process's share of each limit while the store does not answer.
//
// If h processes share a limit, each has its own token clock: the limit's amount per h of its periods, and 1/h of its
// burst, but at least one token. While the store is healthy, the shares are kept warm: the store's decisions are
// charged to them, and a share is never fuller, relative to its size, than the limit was when the store last answered.
// So an outage hands out no fresh burst: together, the shares begin with at most one burst, or with one token each if
// that is more.
//
// A request for more than the burst of a rate's share is admitted while the share is full, which then owes the rest.
//
// A share is full if nothing is known of it, but empty for a quota, until its next window, and for a balance, always:
// what others have spent of them does not come back by itself.
package share

import (
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

const (
	shards = 64
	// look is how many buckets are examined to find one to remove.
	look = 16
)

// Shares are this process's shares of the limits of buckets. See [New].
type Shares struct {
	// Held returns how many millislots of a limit this process holds, which is what its share has spent: slots are not
	// counted here. Optional.
	Held func(b store.Bucket, limit string) int64

	seed   maphash.Seed
	max    int // buckets per shard
	shards [shards]shard
	size   atomic.Int64
	began  atomic.Int64 // see Begin
	away   atomic.Int64 // see Away
}

type shard struct {
	mu sync.Mutex
	m  map[store.Bucket]*entry
}

// New returns shares of at most so many buckets, all full. Only full buckets make room for others. A bucket for which
// there is no room is neither kept warm nor decided.
func New(most int) *Shares {
	s := &Shares{seed: maphash.MakeSeed(), max: max(1, most/shards)}
	s.began.Store(never)
	s.away.Store(math.MaxInt64)
	return s
}

// Away sets the last time at which the store is known to have been away. From then on, it may have issued to others
// what the shares' clocks issue. If Away is never called, the store counts as away until it answers.
func (s *Shares) Away(at time.Time) { s.away.Store(clock.Nanos(at)) }

// AwayFrom is Away for buckets that the store is known not to have decided on, while it answered for others.
func (s *Shares) AwayFrom(debits []store.Debit, at time.Time) {
	for i := range debits {
		sh := s.shard(&debits[i].Bucket)
		sh.mu.Lock()
		if e := s.entry(debits[i].Bucket, clock.Nanos(at)); e != nil {
			e.away = clock.Nanos(at)
		}
		sh.mu.Unlock()
	}
}

// covered returns the time up to which the clocks of a bucket's shares cover what was admitted.
func (s *Shares) covered(e *entry, now int64) int64 { return min(now, max(s.away.Load(), e.away)) }

// Begin sets how shares created from now on start: like those of a process that began at the given time without a store
// to ask. They hold one token at that time, plus what their clocks have issued since. With the zero time they start
// full again.
func (s *Shares) Begin(at time.Time) {
	if at.IsZero() {
		s.began.Store(never)
	} else {
		s.began.Store(clock.Nanos(at))
	}
}

// Len returns the number of buckets.
func (s *Shares) Len() int { return int(s.size.Load()) }

// Take decides all debits or none, over the shares of one of n processes. If there is no room for a bucket, it decides
// nothing and returns false. The levels are those of the shares, and their limits have the shares' parameters.
func (s *Shares) Take(debits []store.Debit, n int, at time.Time) (out store.Outcome, ok bool) {
	held := s.lock(debits)
	defer s.unlock(held)
	now := clock.Nanos(at)
	entries := make([]*entry, len(debits))
	charges := 0
	for i := range debits {
		if entries[i] = s.entry(debits[i].Bucket, now); entries[i] == nil {
			return out, false
		}
		charges += len(debits[i].Charges)
	}
	shares := make([]*share, 0, charges)
	for i := range debits {
		e := entries[i]
		for j := range debits[i].Charges {
			if e.shareOf(debits[i].Charges[j].Limit, n, now, s.began.Load()) < 0 {
				return out, false
			}
		}
		for j := range debits[i].Charges { // now the slice no longer grows
			at := e.find(debits[i].Charges[j].Limit)
			if at < 0 { // a share added later took its place
				return out, false
			}
			shares = append(shares, &e.limits[at])
		}
	}
	out = store.Outcome{Allowed: true, At: at, Levels: make([]store.Level, 0, charges)}
	for i := range debits {
		for j := range debits[i].Charges {
			c, x := &debits[i].Charges[j], shares[len(out.Levels)]
			p, level := Of(c.Limit, n), x.level
			if c.Limit.IsSlots() {
				level = s.held(debits[i].Bucket, c.Limit)
			}
			fits := c.Force || passes(p, level, p.Clock(now), c.Amount)
			out.Levels = append(out.Levels, store.Level{
				Limit: &store.Limit{
					Name: c.Limit.Name, Amount: p.Amount, Period: time.Duration(p.Period),
					Burst: p.Burst, Window: p.Window, Heal: c.Limit.Heal, Override: c.Limit.Override,
				},
				Level: level, Refused: !fits,
			})
			out.Allowed = out.Allowed && (fits || c.Shadow)
		}
	}
	if !out.Allowed {
		return out, true
	}
	s.spend(debits, entries, shares, &out, n, now)
	return out, true
}

// spend debits what fits from the shares, by charge.
func (s *Shares) spend(debits []store.Debit, of []*entry, shares []*share, out *store.Outcome, n int, now int64) {
	at0 := 0
	for i := range debits {
		for j := range debits[i].Charges {
			switch lv, c, x := &out.Levels[at0], &debits[i].Charges[j], shares[at0]; {
			case lv.Refused:
			case c.Limit.IsSlots():
				lv.Level += c.Amount
			default:
				x.spend(Of(c.Limit, n), now, s.covered(of[i], now), c.Amount)
				lv.Level = x.level
			}
			at0++
		}
	}
}

func (s *Shares) held(b store.Bucket, l *store.Limit) int64 {
	if s.Held == nil {
		return 0
	}
	return s.Held(b, l.Name)
}

// passes reports whether a debit is admitted. A debit of more than a rate's burst is admitted if the share is full:
// time makes up for it, which it does not for a quota.
func passes(p clock.Params, level, reading, amount int64) bool {
	if p.Kind() == clock.Rate {
		amount = min(amount, p.Burst)
	}
	return p.Fits(level, reading, amount)
}

// Warm charges a decision or settle of the store to the shares of one of n processes, as of now. It never charges them
// below empty: an instance may use more than its share while the store enforces the whole. The outcome may be brief.
func (s *Shares) Warm(debits []store.Debit, out *store.Outcome, n int, at time.Time) {
	now, then := clock.Nanos(at), clock.Nanos(out.At)
	known := len(out.Levels) > 0
	nth := 0
	for i := range debits {
		d := &debits[i]
		sh := s.shard(&d.Bucket)
		sh.mu.Lock()
		e := s.entry(d.Bucket, now)
		for j := range d.Charges {
			c := &d.Charges[j]
			var lv *store.Level
			if known {
				lv = &out.Levels[nth]
			}
			if nth++; e == nil || c.Limit.IsSlots() {
				continue
			}
			if at := e.share(c.Limit, n, now); at >= 0 {
				e.limits[at].answered(Of(c.Limit, n).Clock(s.covered(e, now)))
				e.limits[at].warm(c, lv, out.Allowed, len(debits) == 1 && len(d.Charges) == 1, now, then)
			}
		}
		sh.mu.Unlock()
	}
}

// Settle changes shares without checking whether the tokens fit: the amounts that a lease holds have changed. A missing
// share is full, and stays so. Strict charges and those with a MaxDebt change less, as in a store; since is when a
// strict one was debited. Settle returns what was changed.
func (s *Shares) Settle(debits []store.Debit, n int, since, at time.Time) []store.Debit {
	now := clock.Nanos(at)
	changed := make([]store.Debit, len(debits))
	for i := range debits {
		changed[i] = debits[i]
		changed[i].Charges = slices.Clone(debits[i].Charges)
		sh := s.shard(&debits[i].Bucket)
		sh.mu.Lock()
		e := sh.m[debits[i].Bucket]
		for j := range changed[i].Charges {
			s.settle(e, &changed[i].Charges[j], n, since, now)
		}
		sh.mu.Unlock()
	}
	return changed
}

// settle changes a share of an entry, if there is one, and sets the charge to what was changed. The share keeps its
// limit, and the charge gets it: that of the charge may have ended since.
func (s *Shares) settle(e *entry, c *store.Charge, n int, since time.Time, now int64) {
	if c.Limit.IsSlots() {
		c.Amount = 0
		return
	}
	at, p := -1, Of(c.Limit, n)
	var was *store.Limit
	level := p.Fresh(now)
	if e != nil {
		l := c.Limit
		if at = e.find(l); at >= 0 {
			was = e.limits[at].limit
			l, p = was, Of(was, n)
		}
		if at = e.shareOf(l, n, now, s.began.Load()); at >= 0 {
			level = e.limits[at].level
		}
	}
	switch {
	case c.Amount < 0 && c.StrictReturns():
		c.Amount = -unissued(c, was, since, now)
	case c.Amount > 0 && c.MaxDebt > 0:
		c.Amount = p.Owable(level, p.Clock(now), c.Amount, c.MaxDebt/int64(max(n, 1)))
	}
	switch {
	case at < 0:
	case c.Amount < 0:
		e.limits[at].back(-c.Amount)
	default:
		e.limits[at].spend(p, now, s.covered(e, now), c.Amount)
	}
	if was != nil {
		c.Limit = was
	}
}

// unissued returns how much a strict limit gives back to a share of it, which had this limit until now. The clock of
// the whole limit counts, because the number of processes may have changed since.
func unissued(c *store.Charge, was *store.Limit, since time.Time, now int64) int64 {
	if since.IsZero() || was == nil || *was != *c.Limit {
		return 0
	}
	p := Of(c.Limit, 1)
	return clock.Unissued(-c.Amount, p.Clock(clock.Nanos(since)), p.Clock(now))
}

// Has reports whether there is a share of a limit. If there is none, there is nothing to bill.
func (s *Shares) Has(b store.Bucket, l *store.Limit) bool {
	sh := s.shard(&b)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.m[b]
	return e != nil && e.find(l) >= 0
}

// Bill returns how many of the millitokens admitted since the last bill the store must be charged: all but those that
// the share's clock has issued after its whole burst, while the store was away: see [Shares.Away]. So what was admitted
// for less time than the limit takes to refill is charged in full. It is 0 for a missing share.
func (s *Shares) Bill(b store.Bucket, l *store.Limit, n int, at time.Time, admitted int64) int64 {
	now := clock.Nanos(at)
	sh := s.shard(&b)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.m[b]
	if e == nil || e.find(l) < 0 {
		return 0
	}
	l = e.limits[e.find(l)].limit // others may have begun since
	return e.limits[e.share(l, n, now)].bill(Of(l, n).Clock(s.covered(e, now)), admitted)
}

func (s *Shares) index(b *store.Bucket) uint64 {
	h := maphash.String(s.seed, b.Entity)
	return (h ^ bits.RotateLeft64(maphash.String(s.seed, b.Resource), 17)) % shards
}

func (s *Shares) shard(b *store.Bucket) *shard { return &s.shards[s.index(b)] }

// lock locks the shards of buckets, in order.
func (s *Shares) lock(debits []store.Debit) (held uint64) {
	for i := range debits {
		held |= 1 << s.index(&debits[i].Bucket)
	}
	for rest := held; rest != 0; rest &= rest - 1 {
		s.shards[bits.TrailingZeros64(rest)].mu.Lock()
	}
	return held
}

func (s *Shares) unlock(held uint64) {
	for ; held != 0; held &= held - 1 {
		s.shards[bits.TrailingZeros64(held)].mu.Unlock()
	}
}

// entry returns a bucket, and creates it if there is room. Its shard is locked.
func (s *Shares) entry(b store.Bucket, now int64) *entry {
	sh := s.shard(&b)
	if e := sh.m[b]; e != nil {
		return e
	}
	if len(sh.m) >= s.max {
		n := 0
		for k, e := range sh.m { // map order varies, so each search starts elsewhere
			if e.full(now) {
				delete(sh.m, k)
				s.size.Add(-1)
				break
			}
			if n++; n == look {
				return nil
			}
		}
		if len(sh.m) >= s.max {
			return nil
		}
	}
	e := &entry{away: never}
	if sh.m == nil {
		sh.m = make(map[store.Bucket]*entry)
	}
	sh.m[b] = e
	s.size.Add(1)
	return e
}
