package inmem

import (
	"math"
	"slices"
	"sync"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Bucket is an entity's state on a resource: its limits' levels, packed into 96 bytes for one limit, because there
// may be millions.
type Bucket struct {
	mu    sync.Mutex
	id    uint64 // 0: dead, no longer in the table
	at    int64  // of the last write, nanoseconds since clock.Epoch
	epoch uint32 // of its own limits; saturates
	own   uint16 // the first own slots are the limits in force, followed by removed and overriding ones
	// Stored and Dirty are the journal's, guarded by the lock: there may be a record, and the bucket differs from it.
	Stored, Dirty bool

	takes int64 // admitted since its birth
	first slot  // up to debited, on the same cache line as the fields above
	key   string
	more  *more // what few buckets have; nil: nothing of it
}

// more is kept apart from Bucket, to keep that small.
type more struct {
	rest    []slot   // all but the first
	reserve *Reserve // the journal's; nil until it needs one
	held    []held   // of the limits of slots; none until the first take
}

type slot struct {
	limit    *store.Limit
	level    int64 // of a limit of slots: rises with each change that an answer must not get ahead of
	debited  int64
	returned int64
}

// maxKey is the maximum length of a bucket's key.
const maxKey = math.MaxUint16

// Reserve returns what of the bucket is durable, or nil if the journal has not set it.
func (b *Bucket) Reserve() *Reserve {
	if b.more == nil {
		return nil
	}
	return b.more.reserve
}

// SetReserve sets what of the bucket is durable.
func (b *Bucket) SetReserve(r *Reserve) {
	if b.more == nil {
		b.more = new(more)
	}
	b.more.reserve = r
}

// Dead reports whether the bucket has left its table.
func (b *Bucket) Dead() bool { return b.id == 0 }

// Len returns the number of slots of a locked bucket.
func (b *Bucket) Len() int {
	switch {
	case b.first.limit == nil:
		return 0
	case b.more == nil:
		return 1
	}
	return 1 + len(b.more.rest)
}

func (b *Bucket) slot(i int) *slot {
	if i == 0 {
		return &b.first
	}
	return &b.more.rest[i-1]
}

// slots returns a copy of all slots, for the rare changes of their set.
func (b *Bucket) slots() []slot {
	s := make([]slot, b.Len())
	for i := range s {
		s[i] = *b.slot(i)
	}
	return s
}

func (b *Bucket) setSlots(s []slot) {
	b.Reserve().reset()
	b.Dirty = true
	b.dropHeld(s)
	b.first = slot{}
	if len(s) > 0 {
		b.first, s = s[0], s[1:]
	}
	if b.more == nil && len(s) > 0 {
		b.more = new(more)
	}
	if b.more != nil {
		b.more.rest = slices.Clone(s)
	}
}

// full reports whether the bucket carries no information.
func (b *Bucket) full(now int64) bool {
	if now < b.at {
		return false
	}
	for i := range b.Len() {
		if !b.fullSlot(b.slot(i), now) {
			return false
		}
	}
	return true
}

// counted reports whether the bucket has counted anything for usage. A sealed one counts for nobody.
func (b *Bucket) counted() bool {
	if b.own == 1 && store.IsSeal(b.first.limit) {
		return false
	}
	if b.takes != 0 {
		return true
	}
	for i := range b.Len() {
		if s := b.slot(i); s.debited != 0 || s.returned != 0 {
			return true
		}
	}
	return false
}

// find returns the slot of a limit, or -1. The bucket's own limits, including removed ones, match by name, and by
// whether they are of slots; overrides match by name and parameters.
func (b *Bucket) find(l *store.Limit) int {
	for i := range b.Len() {
		s := b.slot(i).limit
		if s == l || s.Name == l.Name && s.Override == l.Override && s.IsSlots() == l.IsSlots() &&
			(!l.Override || *s == *l) {
			return i
		}
	}
	return -1
}

// of returns the slot of the i-th charge's limit, which is usually the i-th.
func (b *Bucket) of(i int, l *store.Limit) *slot {
	if i < int(b.own) {
		if s := b.slot(i); s.limit == l || *s.limit == *l {
			return s
		}
	}
	return b.slot(b.find(l))
}

// rebirth restarts the counters under a new ID, because some of them are about to be dropped. It returns the previous
// state.
func (b *Bucket) rebirth(key store.Bucket, id uint64) store.State {
	st := b.state(key, b.at)
	b.id, b.takes = id, 0
	for i := range b.Len() {
		s := b.slot(i)
		s.debited, s.returned = 0, 0
	}
	return st
}

// state returns a locked bucket's state, with the slots that are held at an instant.
func (b *Bucket) state(key store.Bucket, now int64) store.State {
	st := store.State{Bucket: key, ID: b.id, At: clock.Time(b.at), Epoch: uint64(b.epoch), Takes: b.takes}
	st.Limits = make([]store.LimitState, b.Len())
	for i := range st.Limits {
		st.Limits[i] = b.Limit(i)
		if h, ok := b.Held(i); ok {
			st.Limits[i].SetHeld(h.Held, now, 0)
		}
	}
	return st
}

func shortEpoch(e uint64) uint32 { return uint32(min(e, math.MaxUint32)) }
