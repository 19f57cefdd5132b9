package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Attributes of a bucket's shard. Each limit has its own attributes as well, named by a prefix below and [LimitName].
const (
	attrKey   = "PK"  // which every item has
	attrTTL   = "ttl" // when DynamoDB may delete the item, in Unix seconds
	attrIndex = "GP"  // the keys of the index that lists buckets, on shard 0
	attrSort  = "GS"

	attrID        = "id" // identifies this birth of the item
	attrAt        = "at" // time of the last write, in nanoseconds since clock.Epoch
	attrEpoch     = "e"  // config epoch of the limits in force
	attrSet       = "s"  // identifies the limits in force: View.Set
	attrWrites    = "wc" // number of writes so far
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
	TTL       int64 // seconds; 0: none
	Limits    []Limit
}

// Limit is one limit of an item.
type Limit struct {
	Name                     string // as in the names of attributes
	Has                      bool   // has a level; otherwise it is full
	Level, Debited, Returned int64
	Params                   clock.Params
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

// Level returns a limit's level, and whether it has one. A limit without a level is full.
func (it *Item) Level(name string) (int64, bool) {
	if l := it.Find(name); l != nil && l.Has {
		return l.Level, true
	}
	return 0, false
}

// shardsAttr returns the number of shards as it is stored.
func (it *Item) shardsAttr() int64 {
	if it.Frozen {
		return -int64(it.Shards)
	}
	return int64(it.Shards)
}

// Value is an attribute's value.
type Value struct {
	Type Type
	Text string // a number in decimal
}

// Type is the type of an attribute.
type Type byte

// The types of attributes. No attribute of an item is of another type than a number or a text.
const (
	Other Type = iota
	Number
	Text
)

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
		if _, params, override := ParseLimitName(l.Name); override {
			var ok bool
			if l.Params, ok = parseParams(params); !ok {
				return fmt.Errorf("attribute %q: %q are not the parameters of a limit", prefixLevel+l.Name, params)
			}
		}
		if l.Params.Period == 0 {
			return fmt.Errorf("attribute %q: is missing", prefixParams+l.Name)
		}
	}
	slices.SortFunc(it.Limits, func(a, b Limit) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// Put decodes an attribute. Attributes that are not weir's are left out.
func (it *Item) Put(name string, v Value) (err error) {
	switch name {
	case attrID:
		it.Exists = true
		it.ID, err = v.unsigned()
	case attrAt:
		it.At, err = v.number()
	case attrEpoch:
		it.Epoch, err = v.unsigned()
	case attrSet:
		it.Set, err = v.text()
	case AttrShards:
		var n int64
		n, err = v.number()
		it.Shards, it.Frozen = int(max(n, -n)), n < 0
	case attrWrites:
		it.Writes, err = v.number()
	case attrOverrides:
		var n uint64
		if n, err = v.unsigned(); n > math.MaxInt32 {
			err = errNotNumber
		}
		it.Overrides = int(n)
	case attrTakes:
		it.Takes, err = v.number()
	case attrUndone:
		it.Undone, err = v.number()
	case attrTTL:
		it.TTL, err = v.number()
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

func (it *Item) putLimit(prefix, name string, v Value) (err error) {
	switch prefix {
	case prefixLevel:
		l := it.limit(name)
		l.Has = true
		l.Level, err = v.number()
	case prefixDebited:
		it.limit(name).Debited, err = v.number()
	case prefixReturned:
		it.limit(name).Returned, err = v.number()
	case prefixParams:
		var s string
		if s, err = v.text(); err == nil {
			var ok bool
			if it.limit(name).Params, ok = parseParams(s); !ok {
				err = fmt.Errorf("%q are not the parameters of a limit", s)
			}
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

var (
	errNotNumber = errors.New("is not a whole number")
	errNotText   = errors.New("is not a string")
)

// number reads a whole number, saturating.
func (v Value) number() (int64, error) {
	if v.Type != Number {
		return 0, errNotNumber
	}
	i, err := strconv.ParseInt(v.Text, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return i, nil // ParseInt saturates
	}
	return 0, errNotNumber
}

func (v Value) unsigned() (uint64, error) {
	n, err := v.number()
	if err != nil || n < 0 {
		return 0, errNotNumber
	}
	return uint64(n), nil
}

func (v Value) text() (string, error) {
	if v.Type != Text {
		return "", errNotText
	}
	return v.Text, nil
}

// limitOf returns the limit as a store.Limit.
func (l *Limit) limitOf() *store.Limit {
	name, _, override := ParseLimitName(l.Name)
	return &store.Limit{
		Name: name, Amount: l.Params.Amount, Period: time.Duration(l.Params.Period), Burst: l.Params.Burst,
		Override: override,
	}
}

// Combine returns the state of a bucket, given the items of its shards. What is outstanding adds up.
func Combine(key store.Bucket, items []*Item, now int64) store.State {
	st := store.State{Bucket: key}
	// 0, except right after the bucket was forgotten
	first := slices.IndexFunc(items, func(it *Item) bool { return it.Exists })
	if first < 0 {
		return st
	}
	st.ID, st.Epoch = items[first].ID, items[first].Epoch
	if n := items[0].Shards; n > 1 {
		st.Items = n
	}
	at := items[first].At
	for k, it := range items {
		if n := items[0].Shards; k >= n && items[k-n].Shards <= n {
			continue // the new half of a shard that still counts as a whole
		}
		at = max(at, it.At)
		st.Takes += it.Takes - it.Undone
		pl := Place{k, it.Shards}
		for i := range it.Limits {
			l := &it.Limits[i]
			to := slices.IndexFunc(st.Limits, func(s store.LimitState) bool { return LimitName(s.Limit) == l.Name })
			if to < 0 {
				to = len(st.Limits)
				st.Limits = append(st.Limits, store.LimitState{Limit: l.limitOf(), Level: l.Params.Clock(now)})
			}
			s := &st.Limits[to]
			s.Debited += l.Debited
			s.Returned += l.Returned
			switch {
			case len(items) == 1 && it.Shards == 1 && l.Has:
				s.Level = l.Level
			case l.Has:
				s.Level = clock.Spend(s.Level, math.MinInt64, clock.Outstanding(l.Level, pl.Clock(l.Params, now)))
			}
		}
	}
	st.At = clock.Time(at)
	return st
}
