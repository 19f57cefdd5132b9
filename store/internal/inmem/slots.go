package inmem

import (
	"slices"

	arithmetic "github.com/weirlimits/weir/internal/clock/slots"
	"github.com/weirlimits/weir/store"
)

// Held is what a bucket keeps of a limit of slots.
type Held struct {
	// Birth identifies the record of what is held, from the first take on. It outlives the birth of the bucket's
	// counters.
	Birth uint64
	arithmetic.Held
}

type held struct {
	limit string // its name
	Held
}

// took is a charge of a take, and what it took of a limit of slots.
type took struct {
	charge *store.Charge
	hold   store.Hold
}

func holdOf(all []took, c *store.Charge) *store.Hold {
	for i := range all {
		if all[i].charge == c {
			return &all[i].hold
		}
	}
	return nil
}

// held returns what a locked bucket keeps of a limit of slots, or nil if nothing was ever taken.
func (b *Bucket) held(limit string) *held {
	if b.more != nil {
		for i := range b.more.held {
			if b.more.held[i].limit == limit {
				return &b.more.held[i]
			}
		}
	}
	return nil
}

// keep is held, and adds what is missing.
func (b *Bucket) keep(limit string) *held {
	if h := b.held(limit); h != nil {
		return h
	}
	if b.more == nil {
		b.more = new(more)
	}
	b.more.held = append(b.more.held, held{limit: limit})
	return &b.more.held[len(b.more.held)-1]
}

// dropHeld removes what is kept of limits that are not among the bucket's new slots.
func (b *Bucket) dropHeld(s []slot) {
	if b.more == nil || len(b.more.held) == 0 {
		return
	}
	b.more.held = slices.DeleteFunc(b.more.held, func(h held) bool {
		return !slices.ContainsFunc(s, func(s slot) bool { return s.limit.IsSlots() && s.limit.Name == h.limit })
	})
}

// Held returns what a locked bucket keeps of a slot's limit, if that is one of slots.
func (b *Bucket) Held(i int) (Held, bool) {
	l := b.slot(i).limit
	if !l.IsSlots() {
		return Held{}, false
	}
	if h := b.held(l.Name); h != nil {
		return h.Held, true
	}
	return Held{}, true
}

// level returns a slot's level: of a limit of slots, how many are held at an instant.
func (b *Bucket) level(s *slot, now int64) int64 {
	if !s.limit.IsSlots() {
		return s.level
	}
	if h := b.held(s.limit.Name); h != nil {
		return h.At(now, 0).Total()
	}
	return 0
}

// fullSlot reports whether a slot of the bucket carries no information.
func (b *Bucket) fullSlot(s *slot, now int64) bool {
	if s.limit.IsSlots() {
		return b.level(s, now) == 0
	}
	return s.full(now)
}
