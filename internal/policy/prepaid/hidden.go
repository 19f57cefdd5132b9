package prepaid

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Change is a change of the limits of a scope, or of an entity.
type Change struct {
	Record store.Record // as it will be; Version 0 if there will be none, unless it is New
	Before []record.Limit
	After  record.Limits
	Moves  bool // the entity gets another plan or parent
	New    bool // it did not exist, so nothing descends from it
}

// fresh reports whether limits come between entities and those of broader scopes, now or at a time to come.
func (ch *Change) fresh() bool {
	own := func(b record.Bounded) bool { return b.Scale == 0 }
	return len(ch.Before) == 0 && (len(ch.After.Limits) > 0 || slices.ContainsFunc(ch.After.Bounded, own))
}

// loses reports whether a balance is no longer among the limits.
func (ch *Change) loses() bool {
	return slices.ContainsFunc(ch.Before, func(l record.Limit) bool {
		return l.Balance && !slices.Contains(ch.After.Limits, l)
	})
}

// place is a bucket that a change concerns.
type place struct {
	change int
	bucket store.Bucket
}

// Hidden returns the error of each change that would hide a balance which is not 0, now or when limits begin: no limit
// in force would be that balance any more. Of an entity that gets another plan or parent, it looks at its balances, and
// at those of the descendants that have its plan.
//
// It is for people who change limits by mistake: a credit or a debit at the same time may go unnoticed. A balance that
// is hidden all the same stays as it is in the store.
func Hidden(ctx context.Context, st store.Store, n *policy.Namespace, changes []Change) ([]error, error) {
	c := &check{st: st, policies: n, after: make(map[store.Key]store.Record, len(changes))}
	errs := make([]error, len(changes))
	for i := range changes {
		r := changes[i].Record
		if changes[i].New {
			r.Version = 1
		}
		c.after[r.Key] = r
	}
	var places []place
	for i := range changes {
		ch := &changes[i]
		k, sc := ch.Record.Key, record.ScopeOf(ch.Record.Key)
		loses, fresh := ch.loses(), ch.fresh()
		switch {
		case ch.Moves:
			moved, err := c.moved(ctx, ch, len(changes) == 1)
			if err != nil {
				return nil, err
			}
			for _, b := range moved {
				places = append(places, place{i, b})
			}
		case !fresh && !loses:
		case sc.Entity != "" && sc.Resource != "":
			places = append(places, place{i, store.Bucket{Namespace: k.Namespace, Entity: k.ID, Resource: k.Sub}})
		default:
			if !loses {
				if broad, err := c.broad(ctx, k.Namespace); err != nil || len(broad) == 0 {
					if err != nil {
						return nil, err
					}
					continue
				}
			}
			q := store.BucketQuery{Namespace: k.Namespace, Entity: sc.Entity, Resource: sc.Resource}
			if errs[i] = c.list(ctx, ch, q); errs[i] != nil && !isMistake(errs[i]) {
				return nil, errs[i]
			}
		}
	}
	return errs, c.peek(ctx, changes, places, errs)
}

// Kept returns an error if an entity has a balance in force that is not 0.
func Kept(ctx context.Context, st store.Store, n *policy.Namespace, entity store.Key) error {
	c := &check{st: st, policies: n, all: true}
	return c.list(ctx, &Change{}, store.BucketQuery{Namespace: entity.Namespace, Entity: entity.ID})
}

// check looks for balances that changes would hide.
type check struct {
	st       store.Store
	policies *policy.Namespace
	after    map[store.Key]store.Record
	all      bool                // all of the entity's balances are to go
	broader  map[string]struct{} // on what resources or plans have balances; nil: not read yet
}

// broad returns the resources, groups and totals on which a resource or a plan has a balance, or a record that cannot
// be read and may have one.
func (c *check) broad(ctx context.Context, namespace string) (map[string]struct{}, error) {
	if c.broader != nil {
		return c.broader, nil
	}
	found := make(map[string]struct{})
	for _, kind := range []store.Kind{store.KindResourceLimits, store.KindPlanLimits} {
		for r, err := range store.All(ctx, c.st, store.Query{Namespace: namespace, Kind: kind}) {
			if err != nil {
				return nil, err
			}
			var lr record.Limits
			bad := record.Decode(r, &lr) != nil
			has := slices.ContainsFunc(lr.Limits, func(l record.Limit) bool { return l.Balance })
			if on := record.ScopeOf(r.Key).Resource; on != "" && (bad || has) {
				found[on] = struct{}{}
			}
		}
	}
	c.broader = found
	return found, nil
}

// moved returns the buckets that may have balances of broader scopes: those of an entity that moves, and of the
// descendants that have no plan of their own. Alone is set for a single change: if it is of an entity that is new and
// has no bucket, nothing else is read.
func (c *check) moved(ctx context.Context, ch *Change, alone bool) (buckets []store.Bucket, err error) {
	k := ch.Record.Key
	if ch.New && alone {
		page, err := c.st.Buckets(ctx, store.BucketQuery{Namespace: k.Namespace, Entity: k.ID, Max: 1})
		if err != nil || len(page.States) == 0 {
			return nil, err
		}
	}
	broad, err := c.broad(ctx, k.Namespace)
	if err != nil || len(broad) == 0 {
		return nil, err
	}
	ids := []string{k.ID}
	for i := 0; i < len(ids); i++ {
		for _, resource := range slices.Sorted(maps.Keys(broad)) {
			buckets = append(buckets, store.Bucket{Namespace: k.Namespace, Entity: ids[i], Resource: resource})
		}
		if ch.New {
			break
		}
		q := store.Query{Namespace: k.Namespace, Kind: store.KindEntity, Parent: ids[i]}
		for r, err := range store.All(ctx, c.st, q) {
			if err != nil {
				return nil, err
			}
			var e record.Entity
			if record.Decode(r, &e) == nil && e.Plan == "" {
				ids = append(ids, r.Key.ID)
			}
		}
	}
	return buckets, nil
}

// atOnce is how many buckets are read at a time.
const atOnce = 100

// peek looks at the buckets of changes that concern certain ones.
func (c *check) peek(ctx context.Context, changes []Change, places []place, errs []error) error {
	for some := range slices.Chunk(places, atOnce) {
		keys := make([]store.Bucket, len(some))
		for i := range some {
			keys[i] = some[i].bucket
		}
		snap, err := c.st.Peek(ctx, keys...)
		if err != nil {
			return err
		}
		for i := 0; i < len(some); {
			at, n := some[i].change, i+1
			for n < len(some) && some[n].change == at {
				n++
			}
			if errs[at] == nil {
				errs[at] = c.hides(ctx, &changes[at], snap.States[i:n])
			}
			if i = n; errs[at] != nil && !isMistake(errs[at]) {
				return errs[at]
			}
		}
	}
	return nil
}

// list looks at all buckets of a query, until one has a balance that would be hidden.
func (c *check) list(ctx context.Context, ch *Change, q store.BucketQuery) error {
	for q.Max = 1000; ; {
		page, err := c.st.Buckets(ctx, q)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(page.States, atOnce) {
			if err := c.hides(ctx, ch, some); err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}

// hides returns an error if a balance of some buckets that is not 0 is in force, and would no longer be: now, or once
// limits of the change begin or end.
func (c *check) hides(ctx context.Context, ch *Change, states []store.State) error {
	states = slices.DeleteFunc(slices.Clone(states), func(st store.State) bool {
		return !slices.ContainsFunc(st.Limits, left)
	})
	if len(states) == 0 {
		return nil
	}
	buckets := make([]store.Bucket, len(states))
	for i := range states {
		buckets[i] = states[i].Bucket
	}
	when := []int64{0}
	for _, s := range ch.After.Stages() {
		if s.From > clock.Nanos(time.Now()) {
			when = append(when, s.From)
		}
	}
	for _, from := range when {
		before, err := c.policies.InForceAfter(ctx, buckets, nil, from)
		if err != nil {
			return err
		}
		var after []policy.Target
		if !c.all {
			if after, err = c.policies.InForceAfter(ctx, buckets, c.after, from); err != nil {
				return err
			}
		}
		for i := range states {
			for _, l := range states[i].Limits {
				if name := l.Limit.Name; left(l) && has(&before[i], name) && (c.all || !has(&after[i], name)) {
					return c.refuse(buckets[i], name, -l.Level/1000)
				}
			}
		}
	}
	return nil
}

// left reports whether a limit is a balance that is not 0.
func left(l store.LimitState) bool { return l.Limit.IsBalance() && l.Level != 0 }

// refuse returns the error of a change that would hide a balance.
func (c *check) refuse(b store.Bucket, name string, tokens int64) error {
	on := store.ResourceQuoted(b.Resource)
	what := fmt.Sprintf("the balance %q of %q on %s, which has %d left: debit that first (weir adjust)",
		name, b.Entity, on, tokens)
	if tokens < 0 {
		what = fmt.Sprintf("the balance %q of %q on %s, which is %d in debt: forgive that first (weir bucket forgive)",
			name, b.Entity, on, -tokens)
	}
	if c.all {
		return record.Invalid("entity", "cannot be deleted with %s", what)
	}
	return record.Invalid("limits", "would hide %s, or keep %s:balance among them", what, name)
}

func isMistake(err error) bool {
	_, ok := err.(*record.FieldError) //nolint:errorlint // one that is wrapped is not the caller's
	return ok
}
