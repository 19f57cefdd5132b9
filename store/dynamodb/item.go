package dynamodb

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// Attributes of a bucket's shard. Each limit has its own attributes as well, named by a prefix below and limitName.
const (
	attrID    = "id" // identifies this birth of the item
	attrAt    = "at" // time of the last write, in nanoseconds since clock.Epoch
	attrEpoch = "e"  // config epoch of the limits in force
	attrSet   = "s"  // identifies the limits in force: view.set
	// number of shards the bucket is split into; negative while it is being split further; absent: 1.
	attrShards    = "sc"
	attrWrites    = "wc" // number of writes so far
	attrOverrides = "oc" // number of overriding limits in the item
	attrTakes     = "tc" // takes admitted; only grows while id stays the same
	attrUndone    = "uc" // takes undone because another bucket refused them; only grows, too

	prefixLevel    = "L_"
	prefixDebited  = "D_"
	prefixReturned = "R_"
	prefixParams   = "P_"
)

// item is a bucket's shard as a write showed it. It is immutable.
type item struct {
	exists    bool // false also for the empty place that a forgotten split bucket leaves
	id        uint64
	at        int64
	epoch     uint64
	set       string
	shards    int
	frozen    bool // it is being split further, and must not be written to
	writes    int64
	overrides int
	takes     int64 // admitted, including those undone
	undone    int64
	ttl       int64 // seconds; 0: none
	limits    []itemLimit
}

// itemLimit is one limit of an item.
type itemLimit struct {
	name                     string // as in the names of attributes
	has                      bool   // has a level; otherwise it is full
	level, debited, returned int64
	params                   clock.Params
}

var missing = &item{shards: 1}

// find returns a limit of the item, or nil.
func (it *item) find(name string) *itemLimit {
	for i := range it.limits {
		if it.limits[i].name == name {
			return &it.limits[i]
		}
	}
	return nil
}

// shardsAttr returns the number of shards as it is stored.
func (it *item) shardsAttr() int64 {
	if it.frozen {
		return -int64(it.shards)
	}
	return int64(it.shards)
}

// level returns a limit's level, and whether it has one. A limit without a level is full.
func (it *item) level(name string) (int64, bool) {
	if l := it.find(name); l != nil && l.has {
		return l.level, true
	}
	return 0, false
}

// parseItem decodes a bucket's shard. Malformed items, which only manual edits can produce, result in an error that
// names the attribute.
func parseItem(attrs map[string]types.AttributeValue) (*item, error) {
	if len(attrs) == 0 {
		return missing, nil
	}
	it := &item{shards: 1, limits: make([]itemLimit, 0, max(0, (len(attrs)-9)/3+1))}
	for name, v := range attrs {
		if err := it.parse(name, v); err != nil {
			return nil, fmt.Errorf("attribute %q: %w", name, err)
		}
	}
	if it.shards < 1 || it.shards > maxShards || it.shards&(it.shards-1) != 0 {
		return nil, fmt.Errorf("attribute %q: %d is not a valid number of shards", attrShards, it.shards)
	}
	for i := range it.limits {
		l := &it.limits[i]
		if _, params, override := parseLimitName(l.name); override {
			var ok bool
			if l.params, ok = parseParams(params); !ok {
				return nil, fmt.Errorf("attribute %q: %q are not the parameters of a limit", prefixLevel+l.name, params)
			}
		}
		if l.params.Period == 0 {
			return nil, fmt.Errorf("attribute %q: is missing", prefixParams+l.name)
		}
	}
	slices.SortFunc(it.limits, func(a, b itemLimit) int { return cmp.Compare(a.name, b.name) })
	return it, nil
}

func (it *item) parse(name string, v types.AttributeValue) (err error) {
	switch name {
	case attrID:
		it.exists = true
		it.id, err = table.Unsigned(v)
	case attrAt:
		it.at, err = table.Number(v)
	case attrEpoch:
		it.epoch, err = table.Unsigned(v)
	case attrSet:
		it.set, err = table.Text(v)
	case attrShards:
		var n int64
		n, err = table.Number(v)
		it.shards, it.frozen = int(max(n, -n)), n < 0
	case attrWrites:
		it.writes, err = table.Number(v)
	case attrOverrides:
		it.overrides, err = table.Count(v)
	case attrTakes:
		it.takes, err = table.Number(v)
	case attrUndone:
		it.undone, err = table.Number(v)
	case table.AttrTTL:
		it.ttl, err = table.Number(v)
	default:
		if len(name) < 3 || name[1] != '_' {
			return nil
		}
		prefix, rest := name[:2], name[2:]
		switch prefix {
		case prefixLevel:
			l := it.limit(rest)
			l.has = true
			l.level, err = table.Number(v)
		case prefixDebited:
			it.limit(rest).debited, err = table.Number(v)
		case prefixReturned:
			it.limit(rest).returned, err = table.Number(v)
		case prefixParams:
			var s string
			if s, err = table.Text(v); err == nil {
				var ok bool
				if it.limit(rest).params, ok = parseParams(s); !ok {
					err = fmt.Errorf("%q are not the parameters of a limit", s)
				}
			}
		}
	}
	return err
}

func (it *item) limit(name string) *itemLimit {
	if l := it.find(name); l != nil {
		return l
	}
	it.limits = append(it.limits, itemLimit{name: name})
	return &it.limits[len(it.limits)-1]
}

// asLimit returns the limit as a store.Limit.
func (l *itemLimit) asLimit() *store.Limit {
	name, _, override := parseLimitName(l.name)
	return &store.Limit{
		Name: name, Amount: l.params.Amount, Period: time.Duration(l.params.Period), Burst: l.params.Burst,
		Override: override,
	}
}

// combine returns the state of a bucket, given the items of its shards. What is outstanding adds up.
func combine(key store.Bucket, items []*item, now int64) store.State {
	st := store.State{Bucket: key}
	// 0, except right after the bucket was forgotten
	first := slices.IndexFunc(items, func(it *item) bool { return it.exists })
	if first < 0 {
		return st
	}
	st.ID, st.Epoch = items[first].id, items[first].epoch
	at := items[first].at
	for k, it := range items {
		if n := items[0].shards; k >= n && items[k-n].shards <= n {
			continue // the new half of a shard that still counts as a whole
		}
		at = max(at, it.at)
		st.Takes += it.takes - it.undone
		pl := place{k, it.shards}
		for i := range it.limits {
			l := &it.limits[i]
			to := slices.IndexFunc(st.Limits, func(s store.LimitState) bool { return limitName(s.Limit) == l.name })
			if to < 0 {
				to = len(st.Limits)
				st.Limits = append(st.Limits, store.LimitState{Limit: l.asLimit(), Level: l.params.Clock(now)})
			}
			s := &st.Limits[to]
			s.Debited += l.debited
			s.Returned += l.returned
			switch {
			case len(items) == 1 && it.shards == 1 && l.has:
				s.Level = l.level
			case l.has:
				s.Level = clock.Spend(s.Level, math.MinInt64, clock.Outstanding(l.level, pl.clock(l.params, now)))
			}
		}
	}
	st.At = clock.Time(at)
	return st
}
