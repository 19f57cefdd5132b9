package policy

import (
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// chain is what is known of the entities that a request charges.
type chain struct {
	members []member
	until   time.Time
	others
}

// others is what a request depends on besides its entity. Most have none.
type others struct {
	parents    []string // the entities of the chain but the first
	plans      []string // of the members
	above      []string // entities that are not charged, but were read to find a plan
	aggregates []string // what the resource is charged to besides itself
}

// member is an entity of a chain.
type member struct {
	id    string
	rs    []*catalogRecord // by slot
	plan  string           // that it names itself, or its nearest ancestor that names one
	named uint64           // the epoch of the oldest record by which the plan, or that there is none, was found
	bad   error            // why the plan's limits are not known
	on    [][]candidate    // for each of the chain's aggregates
}

// walk reads a chain, with at most one call to the store per entity, and what more it takes to find plans: nothing
// for entities whose ancestors are all charged, apart from the plan of the last one.
type walk struct {
	chain
	from      lookup
	namespace string
	resource  string
	open      int // members from here on have no plan yet
	read      map[store.Key]*catalogRecord
	bad       map[store.Key]error // why a record cannot be used
	wanted    []store.Key         // records of plans and aggregates that were not read yet
}

// chain reads the chain of an entity. brings reports that the request brings the entity's limits. See walk.
func (from lookup) chain(namespaceID, entity, resource string, brings bool) (chain, error) {
	w := &walk{
		from: from, namespace: namespaceID, resource: resource,
		read: make(map[store.Key]*catalogRecord), bad: make(map[store.Key]error),
	}
	w.until = time.Now().Add(1<<62 - 1)
	if from.expected != nil {
		w.aggregates = from.expected(namespaceID, resource)
	}
	for id := entity; id != ""; {
		if len(w.members) == MaxDepth {
			return w.chain, record.Invalid("entity", "%q has a chain of more than %d entities", entity, MaxDepth)
		}
		w.wantAggregates(id)
		rs, err := w.entity(id, brings && id == entity)
		if err != nil {
			return w.chain, err
		}
		if id != entity {
			w.parents = append(w.parents, id)
		} else {
			w.aggregates = record.Aggregates(rs[slotResource].group, rs[slotSystem].totals)
			w.wantAggregates(id) // those that were not expected
		}
		w.members = append(w.members, member{id: id, rs: rs, named: rs[slotEntity].epoch})
		for i := w.open; i < len(w.members)-1; i++ {
			w.members[i].named = min(w.members[i].named, rs[slotEntity].epoch)
		}
		w.name(rs[slotEntity].entity.Plan)
		id = rs[slotEntity].charged()
	}
	if err := w.ancestors(); err != nil {
		return w.chain, err
	}
	if err := w.rest(); err != nil {
		return w.chain, err
	}
	w.planLimits()
	for i := range w.members {
		for _, a := range w.aggregates {
			w.members[i].on = append(w.members[i].on, w.candidates(&w.members[i], a))
		}
	}
	return w.chain, nil
}

// want makes records be read with the next ones.
func (w *walk) want(keys ...store.Key) {
	for _, k := range keys {
		if w.read[k] == nil && !slices.Contains(w.wanted, k) {
			w.wanted = append(w.wanted, k)
		}
	}
}

// wantAggregates wants what an entity, and the plans found so far, have on the aggregates.
func (w *walk) wantAggregates(entity string) {
	for _, a := range w.aggregates {
		w.want(record.Scope{Entity: entity, Resource: a}.Key(w.namespace), record.Scope{Resource: a}.Key(w.namespace))
		for _, plan := range w.plans {
			w.want(record.Scope{Plan: plan, Resource: a}.Key(w.namespace))
		}
	}
}

// candidate is a scope that may have the limits of a bucket.
type candidate struct {
	*catalogRecord
	from  Source // "" for the scope of a plan where there is none
	epoch uint64 // up to which the record, and what led to it, is known
	bad   error  // why it is not known whether it has limits
}

// candidates returns the scopes of a member's limits on an aggregate, in order of precedence.
func (w *walk) candidates(m *member, aggregate string) (cs []candidate) {
	for _, sc := range aggregateScopes(m.id, m.plan, aggregate) {
		k := sc.Key(w.namespace)
		c := candidate{w.read[k], SourceOf(sc), w.read[k].epoch, w.bad[k]}
		if sc.Plan != "" {
			c.epoch = min(c.epoch, m.named)
		}
		cs = append(cs, c)
	}
	if m.plan == "" { // without one, it was named by none, as far as is known
		without := candidate{&catalogRecord{unreadable: m.bad != nil}, "", m.named, m.bad}
		cs = slices.Insert(cs, 1, without)
	}
	return cs
}

// entity reads the records of a charged entity, and in the same call those of plans that are wanted.
func (w *walk) entity(id string, brings bool) ([]*catalogRecord, error) {
	keys := recordsOf(w.namespace, id, w.resource)
	rs, err := w.get(slices.Concat(keys, w.wanted))
	if err == nil {
		w.found(rs[len(keys):])
	} else if errors.Is(err, record.ErrUnreadable) && len(w.wanted) > 0 {
		rs, err = w.get(keys)
	}
	if errors.Is(err, record.ErrUnreadable) {
		// An error in its own limits, or only in its default limits, does not matter if they are not used.
		used := slotDefaultLimits
		if brings {
			used = slotLimits
		}
		if rs, _ = w.get(keys[:used]); len(rs) == used && (brings || len(rs[slotLimits].Limits) > 0) {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	all := make([]*catalogRecord, slots)
	for i := range keys {
		if all[i] = (&catalogRecord{exists: true, unreadable: true}); i < len(rs) {
			all[i] = rs[i]
		}
	}
	return all, nil
}

// get reads records.
func (w *walk) get(keys []store.Key) ([]*catalogRecord, error) {
	rs, good, err := w.from.get(keys)
	if err == nil && good.Before(w.until) {
		w.until = good
	}
	return rs, err
}

// found keeps the records that were wanted.
func (w *walk) found(rs []*catalogRecord) {
	for i, k := range w.wanted {
		w.read[k] = rs[i]
	}
	w.wanted = nil
}

// name sets the plan of the members that have none yet.
func (w *walk) name(plan string) {
	if plan == "" {
		return
	}
	for ; w.open < len(w.members); w.open++ {
		w.members[w.open].plan = plan
	}
	if slices.Contains(w.plans, plan) {
		return
	}
	w.plans = append(w.plans, plan)
	w.want(planRecordsOf(w.namespace, plan, w.resource)...)
	for _, a := range w.aggregates {
		w.want(record.Scope{Plan: plan, Resource: a}.Key(w.namespace))
	}
}

// ancestors finds the plan of members that have none yet among the ancestors that are not charged.
func (w *walk) ancestors() error {
	id := w.members[len(w.members)-1].rs[slotEntity].entity.Parent
	if w.open == len(w.members) || id == "" {
		return nil
	}
	system := w.members[0].rs[slotSystem]
	for i := w.open; i < len(w.members); i++ {
		w.members[i].named = min(w.members[i].named, system.epoch)
	}
	for depth := len(w.members); system.plans && id != "" && w.open < len(w.members) && depth < MaxDepth; depth++ {
		w.above = append(w.above, id)
		rs, err := w.get([]store.Key{record.EntityKey(w.namespace, id)})
		if err != nil && !errors.Is(err, record.ErrUnreadable) {
			return err
		}
		for i := w.open; i < len(w.members); i++ {
			if m := &w.members[i]; err != nil {
				m.bad = err
			} else {
				m.named = min(m.named, rs[0].epoch)
			}
		}
		if id = ""; err == nil {
			w.name(rs[0].entity.Plan)
			id = rs[0].entity.Parent
		}
	}
	return nil
}

// rest reads what is still wanted.
func (w *walk) rest() error {
	if len(w.wanted) > 0 {
		rs, err := w.get(w.wanted)
		switch {
		case err == nil:
			w.found(rs)
		case !errors.Is(err, record.ErrUnreadable):
			return err
		}
	}
	for _, k := range w.wanted { // one of them cannot be read
		rs, err := w.get([]store.Key{k})
		if err != nil && !errors.Is(err, record.ErrUnreadable) {
			return err
		} else if err != nil {
			rs, w.bad[k] = []*catalogRecord{{exists: true, unreadable: true}}, err
		}
		w.read[k] = rs[0]
	}
	return nil
}

// planLimits gives each member the limits of its plan.
func (w *walk) planLimits() {
	none := &catalogRecord{unreadable: true}
	for i := range w.members {
		m := &w.members[i]
		if m.rs[slotPlan], m.rs[slotPlanDefault] = none, none; m.plan != "" {
			for j, k := range planRecordsOf(w.namespace, m.plan, w.resource) {
				if m.rs[slotPlan+j] = w.read[k]; w.bad[k] != nil {
					m.bad = w.bad[k]
				}
			}
		} else if m.bad == nil {
			without := &catalogRecord{epoch: m.named}
			m.rs[slotPlan], m.rs[slotPlanDefault] = without, without
		}
	}
}

// plansOf returns the plans of entities: that they name, or their nearest ancestor that names one. It makes at most one
// call for all entities at the same distance. What cannot be read names none.
func (from lookup) plansOf(namespaceID string, ids []string) (map[string]string, error) {
	plans, at := make(map[string]string), make(map[string]string, len(ids))
	for _, id := range ids {
		at[id] = id
	}
	for depth := 0; len(at) > 0 && depth < MaxDepth; depth++ {
		var keys []store.Key
		places := make(map[string]int)
		for _, id := range at {
			if _, ok := places[id]; !ok {
				places[id] = len(keys)
				keys = append(keys, record.EntityKey(namespaceID, id))
			}
		}
		rs, _, err := from.get(keys)
		if err != nil {
			return nil, err
		}
		for id, now := range at {
			e := &rs[places[now]].entity
			if at[id] = e.Parent; e.Plan != "" {
				plans[id] = e.Plan
			}
			if e.Plan != "" || e.Parent == "" {
				delete(at, id)
			}
		}
	}
	return plans, nil
}
