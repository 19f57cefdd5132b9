package history

import (
	"fmt"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// model is the exact reference: it holds every bucket ever written and forgets none.
type model struct {
	buckets map[store.Bucket]*modelBucket
}

type modelBucket struct {
	epoch  uint64
	inUse  map[string]bool // names of its own limits in force
	meters []*modelMeter
}

type modelMeter struct {
	limit store.Limit
	level int64
	slack int64 // millitokens that limit changes may have cost
}

func newModel() *model { return &model{buckets: map[store.Bucket]*modelBucket{}} }

func (b *modelBucket) find(l *store.Limit) *modelMeter {
	for _, m := range b.meters {
		if reckon.Same(&m.limit, l) {
			return m
		}
	}
	return nil
}

// full reports whether a bucket carries no information at a time, so that a store may have forgotten it.
func (b *modelBucket) full(at time.Time) bool {
	for _, m := range b.meters {
		if fresh := reckon.Fresh(&m.limit, at); m.level > fresh || m.level < fresh && reckon.Balance(&m.limit) {
			return false
		}
	}
	return true
}

// stale reports whether a debit carries older limits than the bucket's.
func (m *model) stale(d store.Debit) bool {
	b := m.buckets[d.Bucket]
	return b != nil && d.Epoch < b.epoch && b.differs(d)
}

func (b *modelBucket) differs(d store.Debit) bool {
	own := 0
	for _, c := range d.Charges {
		if c.Limit.Override {
			continue
		}
		own++
		if m := b.find(c.Limit); m == nil || m.limit != *c.Limit || !b.inUse[c.Limit.Name] {
			return true
		}
	}
	return own > 0 && own != len(b.inUse)
}

// follow gives the bucket the debit's limits, keeping what is outstanding, and returns the bucket.
func (m *model) follow(d store.Debit, now time.Time) *modelBucket {
	b := m.buckets[d.Bucket]
	if b == nil {
		b = &modelBucket{inUse: map[string]bool{}}
		m.buckets[d.Bucket] = b
	}
	change := b.differs(d)
	if change {
		b.inUse = map[string]bool{}
		b.epoch = d.Epoch
	}
	for _, c := range d.Charges {
		mt := b.find(c.Limit)
		switch {
		case mt == nil:
			b.born(c.Limit, now)
		case mt.limit != *c.Limit:
			mt.level = reckon.Reading(c.Limit, now) + reckon.Carried(&mt.limit, c.Limit, mt.level, now)
			mt.limit = *c.Limit
			mt.slack++
		}
		if change && !c.Limit.Override {
			b.inUse[c.Limit.Name] = true
		}
	}
	return b
}

// take decides a take at a given time. It returns, for each charge, its meter and whether it does not fit.
func (m *model) take(debits []store.Debit, now time.Time) (allowed bool, meters []*modelMeter, refused []bool) {
	allowed = true
	for _, d := range debits {
		b := m.follow(d, now)
		for _, c := range d.Charges {
			mt := b.find(c.Limit)
			no := !c.Force && c.Amount > reckon.Room(&mt.limit, mt.level, now)
			meters, refused = append(meters, mt), append(refused, no)
			allowed = allowed && (!no || c.Shadow)
		}
	}
	if !allowed {
		return false, meters, refused
	}
	i := 0
	for _, d := range debits {
		for _, c := range d.Charges {
			if !refused[i] { // otherwise it is a shadow charge that does not fit
				meters[i].spend(c.Amount, now)
			}
			i++
		}
	}
	return true, meters, refused
}

func (mt *modelMeter) spend(a int64, now time.Time) {
	mt.level = max(mt.level, reckon.Reading(&mt.limit, now)) + a
}

// born adds a limit of which nothing was spent.
func (b *modelBucket) born(l *store.Limit, now time.Time) *modelMeter {
	mt := &modelMeter{limit: *l, level: reckon.Fresh(l, now)}
	b.meters = append(b.meters, mt)
	return mt
}

// credit applies a credit of each debit's first amount.
func (m *model) credit(debits []store.Debit, now time.Time) {
	for _, d := range debits {
		b, l := m.follow(store.Debit{Bucket: d.Bucket}, now), d.Charges[0].Limit
		mt := b.find(l)
		if mt == nil {
			mt = b.born(l, now)
		}
		mt.level -= d.Charges[0].Amount
	}
}

// settle applies a settle at a given time, to the limits that the bucket has.
func (m *model) settle(debits []store.Debit, now time.Time) {
	for _, d := range debits {
		for _, c := range d.Charges {
			b := m.buckets[d.Bucket]
			creates := c.Amount > 0 || reckon.Balance(c.Limit)
			if b == nil && creates {
				b = m.follow(store.Debit{Bucket: d.Bucket, Epoch: d.Epoch}, now)
			}
			if b == nil {
				continue
			}
			mt := b.find(c.Limit)
			if mt == nil && creates {
				mt = b.born(c.Limit, now)
			}
			switch {
			case mt == nil:
			case c.Amount > 0:
				mt.spend(c.Amount, now)
			case reckon.Quota(&mt.limit): // histories do not have when the debit was
			default:
				mt.level += c.Amount
			}
		}
	}
}

// agree compares what a store shows of a limit with the model, and then adopts the store's value within the millitoken
// that a limit change may cost.
func (mt *modelMeter) agree(l *store.Limit, level int64, now time.Time) error {
	if *l != mt.limit {
		return fmt.Errorf("limit %+v, want %+v", *l, mt.limit)
	}
	got, want := reckon.Outstanding(l, level, now), reckon.Outstanding(&mt.limit, mt.level, now)
	if got < want || got > want+mt.slack {
		return fmt.Errorf("%s: %d millitokens outstanding, want %d", l.Name, got, want)
	}
	mt.level += got - want
	mt.slack = 0
	return nil
}
