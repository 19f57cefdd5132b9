package inmem

import (
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

// Take decides a take in memory. Wait for the tickets before answering.
func (t *Table) Take(take store.Take) (store.Outcome, Tickets, error) {
	if err := checkTake(&take); err != nil {
		return store.Outcome{}, Tickets{}, err
	}
	var room [4]*Bucket
	bs := room[:1]
	if len(take.Debits) == 1 {
		b, err := t.lock(take.Debits[0].Bucket, true)
		if err != nil {
			return store.Outcome{}, Tickets{}, err
		}
		bs[0] = b
	} else {
		var err error
		if bs, err = t.lockAll(take.Debits, room[:], always); err != nil {
			return store.Outcome{}, Tickets{}, err
		}
	}
	op := operation{table: t}
	out, err := op.take(&take, bs)
	for _, b := range bs {
		b.mu.Unlock()
	}
	t.retire(op.retired)
	return out, op.tickets, err
}

// Find returns the bucket of a key, or nil if there is none.
func (t *Table) Find(key store.Bucket) *Bucket {
	b, _ := t.get(key, false)
	return b
}

// TakeOne decides a take of one charge on a bucket. ok is false, and nothing was decided, unless the bucket is alive
// and the charge's limit is its only one in force, and not of slots. It is for tables without a journal, because it
// does not report the change.
func (t *Table) TakeOne(b *Bucket, c *store.Charge) (allowed, ok bool) {
	// Before the lock, because others wait there.
	l, now := c.Limit, t.Now()
	reading := l.Params().Clock(now)
	b.mu.Lock()
	if b.Dead() || b.own != 1 || l.Heal != 0 || b.first.limit != l && *b.first.limit != *l {
		b.mu.Unlock()
		return false, false
	}
	if now < b.at {
		now = b.at
		reading = l.Params().Clock(now)
	}
	if allowed = clock.Fits(l.Burst, b.first.level, reading, c.Amount); allowed {
		t.stamp(b, now)
		b.takes++
		b.first.level = clock.Spend(b.first.level, reading, c.Amount)
		b.first.debited += c.Amount
	}
	b.mu.Unlock()
	return allowed, true
}

// Settle returns and forces tokens in memory. Wait for the tickets before answering.
func (t *Table) Settle(s store.Settle) (store.Outcome, Tickets, error) {
	if err := checkSettle(&s); err != nil {
		return store.Outcome{}, Tickets{}, err
	}
	bs, err := t.lockSettle(s.Debits)
	if err != nil {
		return store.Outcome{}, Tickets{}, err
	}
	op := operation{table: t}
	out, err := op.settle(&s, bs)
	for _, b := range bs {
		if b != nil {
			b.mu.Unlock()
		}
	}
	return out, op.tickets, err
}

// Credit adds tokens to a balance in memory. Wait for the tickets before answering, also if it was applied before: the
// commit that it waited for may have failed.
func (t *Table) Credit(c store.Credit) (store.Credited, Tickets, error) {
	if err := c.Check(); err != nil {
		return store.Credited{}, Tickets{}, err
	}
	b, err := t.lock(c.Bucket, true)
	if err != nil {
		return store.Credited{}, Tickets{}, err
	}
	defer b.mu.Unlock()
	op := operation{table: t, now: max(t.Now(), b.at)}
	out, err := op.credit(b, &c)
	return out, op.tickets, err
}

// ForgetCredits forgets the credits to a balance in memory, and returns the beginning of their marks, and of no others.
func (t *Table) ForgetCredits(b store.Bucket, limit string) (prefix string) {
	prefix = string(varint.AppendParts(nil, b.Namespace, b.Entity, b.Resource, limit))
	t.credits.forget(prefix)
	return prefix
}

// Undo returns the tokens of an allowed take that was never answered because its ticket failed.
//
// It keeps back what the clock has issued since: without the take, a bucket that was full meanwhile would have lost
// those tokens, and returning them would admit more.
func (t *Table) Undo(take store.Take, ts Tickets) {
	op := operation{table: t}
	for i, b := range ts.w.bs {
		b.mu.Lock()
		if !b.Dead() {
			op.undo(b, &take.Debits[i], ts.w)
		}
		b.mu.Unlock()
	}
}

// Forget removes buckets, whatever they owe, but balances and slots that are held. Wait for the tickets before
// answering.
func (t *Table) Forget(keys []store.Bucket) Tickets {
	op := operation{table: t}
	for _, key := range keys {
		b := t.find(key)
		if b == nil {
			continue
		}
		if b.Dead() {
			b.mu.Unlock()
			continue
		}
		if op.reset(b, key) {
			b.mu.Unlock()
			continue
		}
		t.gone(b)
		if t.cfg.Retired != nil && b.counted() {
			op.retired = append(op.retired, b.state(key, b.at))
		}
		op.changed(b, Forgotten)
		b.setSlots(nil)
		b.own = 0
		b.id = 0
		b.mu.Unlock()
		// Never wait for a shard's lock while holding a bucket's.
		s, hash := t.shard([]byte(b.key))
		s.mu.Lock()
		if s.buckets.remove(hash, b) {
			t.count.Add(-1)
		}
		s.mu.Unlock()
	}
	t.retire(op.retired)
	return op.tickets
}

// lockAll locks the buckets of several debits in the order of their keys, and returns them in the order of the
// debits, in room if it suffices. A bucket that does not exist and must not be created is nil.
func (t *Table) lockAll(debits []store.Debit, room []*Bucket, create func(*store.Debit) bool) ([]*Bucket, error) {
	order := make([]int, len(debits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return debits[i].Bucket.Compare(debits[j].Bucket) })
	for n := 1; n < len(order); n++ {
		if debits[order[n-1]].Bucket == debits[order[n]].Bucket {
			return nil, store.ErrDuplicateBucket
		}
	}
	bs := room
	if len(debits) > len(bs) {
		bs = make([]*Bucket, len(debits))
	}
	bs = bs[:len(debits)]
	for {
		// Hold no bucket locks while looking up or creating buckets, which takes the shards' locks.
		for i := range debits {
			var err error
			if bs[i], err = t.get(debits[i].Bucket, create(&debits[i])); err != nil {
				return nil, err
			}
		}
		moved := false
		for _, i := range order {
			if b := bs[i]; b != nil {
				b.mu.Lock()
				if b.Dead() {
					moved = true
				}
			}
		}
		// A missing bucket may have been born before the others were locked. Holders of a shard's lock never wait for
		// a bucket's, so has may be called here.
		for i := range debits {
			moved = moved || bs[i] == nil && t.has(debits[i].Bucket)
		}
		if !moved {
			return bs, nil
		}
		for _, b := range bs {
			if b != nil {
				b.mu.Unlock()
			}
		}
	}
}

// lockSettle locks the existing buckets, and creates those on which something is forced, or returned to a balance.
func (t *Table) lockSettle(debits []store.Debit) ([]*Bucket, error) {
	if len(debits) == 1 {
		b, err := t.lock(debits[0].Bucket, forcing(&debits[0]))
		return []*Bucket{b}, err
	}
	return t.lockAll(debits, nil, forcing)
}

func forcing(d *store.Debit) bool {
	for j := range d.Charges {
		if creates(&d.Charges[j]) {
			return true
		}
	}
	return false
}

func always(*store.Debit) bool { return true }

func checkTake(t *store.Take) error {
	if len(t.Debits) == 0 {
		return store.ErrInvalid
	}
	for i := range t.Debits {
		if len(t.Debits[i].Charges) == 0 {
			return store.ErrInvalid
		}
		for j := range t.Debits[i].Charges {
			if c := &t.Debits[i].Charges[j]; c.Limit == nil || c.Amount < 0 || c.Force && c.Shadow || c.Hold != nil {
				return store.ErrInvalid
			}
		}
	}
	return t.CheckSize()
}

func checkSettle(s *store.Settle) error {
	if len(s.Debits) == 0 && s.ID == "" || s.ID != "" && s.Expires.IsZero() {
		return store.ErrInvalid
	}
	for i := range s.Debits {
		for j := range s.Debits[i].Charges {
			c := &s.Debits[i].Charges[j]
			if c.Limit == nil || c.Force || c.Shadow || c.Amount == -1<<63 || s.Forgive && c.Amount >= 0 ||
				c.Hold != nil && !c.Limit.IsSlots() {
				return store.ErrInvalid
			}
		}
	}
	return s.CheckSize()
}
