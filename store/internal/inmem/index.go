package inmem

import (
	"hash/maphash"
	"iter"
)

// index finds buckets by key, with open addressing and linear probing over pointers. A Go map would take three times
// the memory for each of what may be millions.
type index struct {
	seed  maphash.Seed
	slots []*Bucket // a power of two, or none
	tags  []uint8   // of the keys in the slots: other buckets need not be read, which would cost a cache line each
	n     int
}

func (x *index) len() int { return x.n }

// home returns the slot where the search for a key begins. The low bits of the hash chose the shard.
func (x *index) home(hash uint64) int { return int(hash>>8) & (len(x.slots) - 1) }

// tag returns a part of the hash that neither chose the shard nor the slot.
func tag(hash uint64) uint8 { return uint8(hash >> 56) }

func (x *index) get(hash uint64, key []byte) *Bucket {
	if x.n == 0 {
		return nil
	}
	for i := x.home(hash); ; i = (i + 1) & (len(x.slots) - 1) {
		if b := x.slots[i]; b == nil || x.tags[i] == tag(hash) && b.key == string(key) {
			return b
		}
	}
}

// put adds a bucket whose key is not in the index.
func (x *index) put(hash uint64, b *Bucket) {
	if 4*(x.n+1) > 3*len(x.slots) {
		x.resize(max(8, 2*len(x.slots)))
	}
	x.place(hash, b)
	x.n++
}

func (x *index) place(hash uint64, b *Bucket) {
	i := x.home(hash)
	for x.slots[i] != nil {
		i = (i + 1) & (len(x.slots) - 1)
	}
	x.slots[i], x.tags[i] = b, tag(hash)
}

// resize moves the buckets to as many slots.
func (x *index) resize(slots int) {
	old := x.slots
	x.slots, x.tags = make([]*Bucket, slots), make([]uint8, slots)
	for _, b := range old {
		if b != nil {
			x.place(maphash.String(x.seed, b.key), b)
		}
	}
}

// remove removes a bucket, and reports whether it was there.
func (x *index) remove(hash uint64, b *Bucket) bool {
	if x.n == 0 {
		return false
	}
	i := x.home(hash)
	for x.slots[i] != b {
		if x.slots[i] == nil {
			return false
		}
		i = (i + 1) & (len(x.slots) - 1)
	}
	x.removeAt(i)
	return true
}

// removeAt empties a slot, and moves up later buckets that were displaced by it.
func (x *index) removeAt(i int) {
	mask := len(x.slots) - 1
	for j := (i + 1) & mask; x.slots[j] != nil; j = (j + 1) & mask {
		home := x.home(maphash.String(x.seed, x.slots[j].key))
		if (j-home)&mask >= (j-i)&mask {
			x.slots[i], x.tags[i] = x.slots[j], x.tags[j]
			i = j
		}
	}
	x.slots[i] = nil
	x.n--
}

// all yields the buckets. The index must not change meanwhile.
func (x *index) all() iter.Seq[*Bucket] {
	return func(yield func(*Bucket) bool) {
		for _, b := range x.slots {
			if b != nil && !yield(b) {
				return
			}
		}
	}
}

// sweep removes the buckets for which evict returns true, and releases memory that is no longer needed.
func (x *index) sweep(evict func(*Bucket) bool) {
	for i := 0; i < len(x.slots); {
		if b := x.slots[i]; b != nil && evict(b) {
			x.removeAt(i) // another bucket may have moved here
		} else {
			i++
		}
	}
	if len(x.slots) > 64 && 8*x.n < len(x.slots) {
		x.resize(len(x.slots) / 4)
	}
}
