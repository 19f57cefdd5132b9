package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/hold"
	"github.com/weirlimits/weir/internal/batch/limitname"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/slots"
	"github.com/weirlimits/weir/store"
)

// Attributes of a bucket's shard. Each limit has its own attributes as well, named by a prefix below and by package
// limitname.
const (
	attrIndex = "GP" // the keys of the index that lists buckets, on shard 0
	attrSort  = "GS"

	attrID        = expr.ID
	attrAt        = "at" // time of the last write, in nanoseconds since clock.Epoch
	attrEpoch     = "e"  // config epoch of the limits in force
	attrSet       = "s"  // identifies the limits in force: View.Set
	attrOverrides = "oc" // number of overriding limits in the item
	attrTakes     = "tc" // takes admitted; only grows while id stays the same
	attrUndone    = "uc" // takes undone because another bucket refused them; only grows, too

	prefixLevel    = "L_"
	prefixDebited  = "D_"
	prefixReturned = "R_"
	prefixParams   = "P_"
)

// AttrShards is the number of shards that the bucket is split into; negative while it is being split further; absent:
// 1.
const AttrShards = "sc"

// AttrWrites is the number of writes so far.
const AttrWrites = "wc"

// AttrTTL is when DynamoDB may delete the item, in Unix seconds.
const AttrTTL = "ttl"

// MaxShards is the maximum number of shards of a bucket.
const MaxShards = 64

// Item is a bucket's shard as a write showed it. It is immutable.
type Item struct {
	Exists    bool // false also for the empty place that a forgotten split bucket leaves
	ID        uint64
	At        int64
	Epoch     uint64
	Set       string
	Shards    int
	Frozen    bool // it is being split further, and must not be written to
	Writes    int64
	Overrides int
	Takes     int64 // admitted, including those undone
	Undone    int64
	TTL       int64  // seconds; 0: none
	Held      uint64 // identifies this birth of what is held of limits of slots; 0: nothing ever was
	Limits    []Limit
}

// Limit is one limit of an item.
type Limit struct {
	Name                     string // as in the names of attributes
	Has                      bool   // has a level; otherwise it is at [Place.Fresh]
	Level, Debited, Returned int64
	Params                   clock.Params
	Slots                    slots.Held // of a limit of slots, which has no level
}

// Missing is an item that does not exist.
var Missing = &Item{Shards: 1}

// Find returns a limit of the item, or nil.
func (it *Item) Find(name string) *Limit {
	for i := range it.Limits {
		if it.Limits[i].Name == name {
			return &it.Limits[i]
		}
	}
	return nil
}

// Level returns a limit's level at a time, and whether it has one. A limit without a level is at [Place.Fresh].
func (it *Item) Level(name string, now int64) (int64, bool) {
	if l := it.Find(name); l != nil {
		return l.at(now)
	}
	return 0, false
}

// at is the limit's level at a time, and whether it has one.
func (l *Limit) at(now int64) (level int64, has bool) {
	if l.Params.Kind() == clock.Slots {
		return l.Slots.At(now, hold.Skew).Total(), l.Slots.End != 0
	}
	return l.Level, l.Has
}

// holding reports whether slots may be held.
func (it *Item) holding(now int64) bool {
	return it.Held != 0 && slices.ContainsFunc(it.Limits, func(l Limit) bool { return hold.Alive(l.Slots, now) })
}

// shardsAttr returns the number of shards as it is stored.
func (it *Item) shardsAttr() int64 {
	if it.Frozen {
		return -int64(it.Shards)
	}
	return int64(it.Shards)
}

// NewItem returns an item to which about n attributes will be put.
func NewItem(n int) *Item { return &Item{Shards: 1, Limits: make([]Limit, 0, max(0, (n-9)/3+1))} }

// Check completes an item once all attributes have been put. Malformed items, which only manual edits can produce,
// result in an error that names the attribute.
func (it *Item) Check() error {
	if it.Shards < 1 || it.Shards > MaxShards || it.Shards&(it.Shards-1) != 0 {
		return fmt.Errorf("attribute %q: %d is not a valid number of shards", AttrShards, it.Shards)
	}
	for i := range it.Limits {
		l := &it.Limits[i]
		if _, params, override := limitname.Parse(l.Name); override {
			var ok bool
			if l.Params, ok = limitname.ParseParams(params); !ok {
				return fmt.Errorf("attribute %q: %q are not the parameters of a limit", prefixLevel+l.Name, params)
			}
		}
		if l.Params == (clock.Params{}) {
			return fmt.Errorf("attribute %q: is missing", prefixParams+l.Name)
		}
	}
	slices.SortFunc(it.Limits, func(a, b Limit) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// stamp counts the write, and notes its time.
func stamp(u *expr.Update, now int64) {
	u.Op(expr.Set, attrAt, now)
	u.Op(expr.Add, AttrWrites, 1)
}

// List gives an item that has none of them the keys of the index that lists buckets.
func List(u *expr.Update, index, sort string) {
	u.OpText(expr.SetOnce, attrIndex, index)
	u.OpText(expr.SetOnce, attrSort, sort)
}

// Parse decodes the attributes of a bucket's shard.
func Parse(a expr.Attributes) (*Item, error) {
	if len(a) == 0 {
		return Missing, nil
	}
	it := NewItem(len(a))
	for name, v := range a {
		if err := it.Put(name, v); err != nil {
			return nil, err
		}
	}
	return it, it.Check()
}

// Put decodes an attribute. Attributes that are not weir's are left out.
func (it *Item) Put(name string, v expr.Value) (err error) {
	switch name {
	case attrID:
		it.Exists = true
		it.ID, err = v.AsUint()
	case attrAt:
		it.At, err = v.AsInt()
	case attrEpoch:
		it.Epoch, err = v.AsUint()
	case attrSet:
		it.Set, err = v.AsText()
	case AttrShards:
		var n int64
		n, err = v.AsInt()
		it.Shards, it.Frozen = int(max(n, -n)), n < 0
	case AttrWrites:
		it.Writes, err = v.AsInt()
	case attrOverrides:
		var n uint64
		if n, err = v.AsUint(); n > math.MaxInt32 {
			err = expr.ErrNotNumber
		}
		it.Overrides = int(n)
	case attrTakes:
		it.Takes, err = v.AsInt()
	case attrUndone:
		it.Undone, err = v.AsInt()
	case AttrTTL:
		it.TTL, err = v.AsInt()
	case hold.Birth:
		it.Held, err = v.AsUint()
	default:
		if len(name) >= 3 && name[1] == '_' {
			err = it.putLimit(name[:2], name[2:], v)
		}
	}
	if err != nil {
		return fmt.Errorf("attribute %q: %w", name, err)
	}
	return nil
}

func (it *Item) putLimit(prefix, name string, v expr.Value) (err error) {
	switch prefix {
	case prefixLevel:
		l := it.limit(name)
		l.Has = true
		l.Level, err = v.AsInt()
	case prefixDebited:
		it.limit(name).Debited, err = v.AsInt()
	case prefixReturned:
		it.limit(name).Returned, err = v.AsInt()
	case prefixParams:
		var s string
		if s, err = v.AsText(); err == nil {
			var ok bool
			if it.limit(name).Params, ok = limitname.ParseParams(s); !ok {
				err = fmt.Errorf("%q are not the parameters of a limit", s)
			}
		}
	default:
		if hold.Is(prefix) {
			err = hold.Put(&it.limit(name).Slots, prefix, v)
		}
	}
	return err
}

func (it *Item) limit(name string) *Limit {
	if l := it.Find(name); l != nil {
		return l
	}
	it.Limits = append(it.Limits, Limit{Name: name})
	return &it.Limits[len(it.Limits)-1]
}

// sealing reports whether a limit is that of a sealed bucket.
func sealing(l Limit) bool { return store.IsSeal(limitname.Limit(l.Name, l.Params)) }

// Combine returns the state of a bucket, given the items of its shards. What is outstanding adds up. The bucket is
// sealed only if all its items are.
func Combine(key store.Bucket, items []*Item, now int64) store.State {
	st := store.State{Bucket: key}
	first := slices.IndexFunc(items, func(it *Item) bool { return it.Exists }) // 0, unless just forgotten
	if first < 0 {
		return st
	}
	st.ID, st.Epoch = items[first].ID, items[first].Epoch
	if n := items[0].Shards; n > 1 {
		st.Items = n
	}
	at, open := items[first].At, false
	for k, it := range items {
		if n := items[0].Shards; k >= n && items[k-n].Shards <= n {
			continue // the new half of a shard that still counts as a whole
		}
		at = max(at, it.At)
		st.Takes += it.Takes - it.Undone
		open = open || it.Exists && !slices.ContainsFunc(it.Limits, sealing)
		pl := Place{k, it.Shards}
		for i := range it.Limits {
			l := &it.Limits[i]
			to := slices.IndexFunc(st.Limits, func(s store.LimitState) bool { return limitname.Of(s.Limit) == l.Name })
			if to < 0 {
				to = len(st.Limits)
				limit := limitname.Limit(l.Name, l.Params)
				st.Limits = append(st.Limits, store.LimitState{Limit: limit, Level: l.Params.Fresh(now)})
			}
			s := &st.Limits[to]
			s.Debited += l.Debited
			s.Returned += l.Returned
			switch level, has := l.at(now); {
			case l.Slots.End != 0: // on shard 0 alone
				s.SetHeld(l.Slots, now, hold.Skew)
			case len(items) == 1 && it.Shards == 1 && has:
				s.Level = level
			case has:
				s.Level = clock.Add(s.Level, pl.Spent(l.Params, level, now))
			}
		}
	}
	if open {
		st.Limits = slices.DeleteFunc(st.Limits, func(l store.LimitState) bool { return store.IsSeal(l.Limit) })
	}
	st.At = clock.Time(at)
	return st
}
