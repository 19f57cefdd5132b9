package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/internal/policy/cache"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Namespace resolves the limits of one namespace.
type Namespace struct {
	*Resolver

	name   string
	pinned *namespaceState // of a namespace whose id is known without a lookup
	found  atomic.Pointer[foundNamespace]
}

// foundNamespace is the result of a namespace lookup.
type foundNamespace struct {
	state    *namespaceState
	until    int64  // nanoseconds since the resolver's start
	registry uint64 // Resolver.registry, before the lookup
}

// namespaceState is what this process keeps of a namespace: the policies made so far, and recent changes.
type namespaceState struct {
	resolver *Resolver
	id, name string
	full     *policies // with the entity's own limits
	parents  *policies // without the entity's own limits: for requests that bring limits

	system  atomic.Pointer[settings] // of the system's record, as last read; nil before
	unknown cache.Misses             // of entities, if only known ones are allowed

	maxBuckets atomic.Int64 // of the namespace's record, as last read

	generation atomic.Uint64 // number of changes made through this process
	mu         sync.Mutex
	changes    []change // the most recent ones
}

// Name returns the namespace's name.
func (n *Namespace) Name() string { return n.name }

// ID returns the namespace's opaque id, looking it up if needed.
//
// Errors: [*record.FieldError], [ErrNotFound], store errors.
func (n *Namespace) ID(ctx context.Context) (string, error) {
	s, err := n.lookUp(ctx, n.elapsed())
	if err != nil {
		return "", err
	}
	return s.id, nil
}

// LastID returns the opaque id as it was last looked up; "" if it never was.
func (n *Namespace) LastID() string {
	if n.pinned != nil {
		return n.pinned.id
	}
	if f := n.found.Load(); f != nil {
		return f.state.id
	}
	return ""
}

func (n *Namespace) lookUp(ctx context.Context, now int64) (*namespaceState, error) {
	if n.pinned != nil {
		return n.pinned, nil
	}
	registry := n.registry.Load()
	if f := n.found.Load(); f != nil && now < f.until && f.registry == registry {
		return f.state, nil
	}
	if err := record.CheckID("namespace", n.name); err != nil {
		return nil, err
	}
	rs, until, err := n.records.Get(ctx, []store.Key{record.NamespaceKey(n.name)}, n.load)
	if err != nil {
		return nil, err
	}
	if !rs[0].exists || rs[0].namespace.Deleted != nil {
		return nil, fmt.Errorf("namespace %q: %w", n.name, ErrNotFound)
	}
	s := n.state(rs[0].namespace.ID, n.name)
	s.maxBuckets.Store(int64(rs[0].namespace.MaxBuckets))
	n.found.Store(&foundNamespace{s, int64(until.Sub(n.start)), registry})
	return s, nil
}

// lastKnown returns the namespace as it was last looked up, or as it is known from outside the process; nil if neither.
// It is gone if it was deleted through this process, or its record cannot be read.
func (n *Namespace) lastKnown() (s *namespaceState, gone bool) {
	if n.pinned != nil {
		return n.pinned, false
	}
	f := n.found.Load()
	if f != nil && f.registry == n.registry.Load() {
		return f.state, false
	}
	rs, ok := n.records.Known([]store.Key{record.NamespaceKey(n.name)})
	switch {
	case !ok && f != nil:
		return f.state, false
	case !ok:
		return nil, false
	case !rs[0].exists || rs[0].unreadable || rs[0].namespace.Deleted != nil:
		return nil, rs[0].exists || rs[0].noted
	}
	return n.state(rs[0].namespace.ID, n.name), false
}

// change is the scope of a change of the catalog.
type change struct {
	all bool // every policy
	// Policies that depend on this entity or this plan, or that are for this resource; if the resource is set beside
	// one of them, those that fulfil both.
	entity, plan, resource string
}

// maxChanges is how many changes are remembered individually; a policy that missed more is made again.
const maxChanges = 256

// changed invalidates the policies that a change affects.
func (s *namespaceState) changed(c change) {
	defer s.resolver.cfg.OnChange(s.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changes) == maxChanges {
		s.changes = slices.Delete(s.changes, 0, maxChanges/2)
	}
	s.changes = append(s.changes, c)
	s.generation.Add(1)
}

// current reports whether nothing that affects a policy has changed through this process since the policy was made.
func (s *namespaceState) current(p *Policy) bool {
	g := s.generation.Load()
	if p.generation.Load() == g {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g = s.generation.Load()
	missed := g - p.generation.Load()
	if missed > uint64(len(s.changes)) {
		return false
	}
	for _, c := range s.changes[len(s.changes)-int(missed):] {
		if c.concerns(p) {
			return false
		}
	}
	p.generation.Store(g)
	return true
}

func (c change) concerns(p *Policy) bool {
	switch {
	case c.all:
		return true
	case c.resource != "" && c.resource != p.Resource && !slices.Contains(p.others().aggregates, c.resource):
		return false
	case c.entity != "":
		o := p.others()
		return c.entity == p.Entity || slices.Contains(o.parents, c.entity) || slices.Contains(o.above, c.entity)
	}
	return c.plan == "" || slices.Contains(p.others().plans, c.plan)
}

// read remembers the settings of the system's record as read at a generation, unless they may have changed since.
func (s *namespaceState) read(m settings, generation uint64) {
	if have := s.system.Load(); have != nil && *have == m {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation.Load() == generation {
		s.system.Store(&m)
	}
}

// subject is what Resolve finds the policy of.
type subject struct{ entity, resource string }

// Has reports whether Resolve finds the policy without a call to the store. If it is about to expire, Has is false.
func (n *Namespace) Has(entity, resource string, own bool) bool {
	return n.fresh(entity, resource, own) != nil
}

// Prefetch reads what Resolve will need for several requests, as far as it is not cached: with one call to the store
// for all entities at the same depth of their chains, and one for their plans, and for groups and totals that were not
// known before. It does nothing for one request, or if nothing is ever cached. The errors are those of Resolve, except
// for records that cannot be read: Resolve finds out which of the requests they concern.
func (n *Namespace) Prefetch(
	ctx context.Context, count int, request func(i int) (entity, resource string, own bool),
) error {
	if n.cfg.TTL <= 0 || count < 2 {
		return nil
	}
	var level []subject
	seen := make(map[subject]bool)
	add := func(s subject) {
		if !seen[s] && record.CheckIDs(s.entity, s.resource) == nil {
			seen[s] = true
			level = append(level, s)
		}
	}
	for i := range count {
		if entity, resource, own := request(i); n.fresh(entity, resource, own) == nil {
			add(subject{entity, resource})
		}
	}
	if len(level) == 0 {
		return nil
	}
	state, err := n.lookUp(ctx, n.elapsed())
	if err != nil {
		return err
	}
	planned := false
	for depth := 0; len(level) > 0 && depth < MaxDepth && err == nil; depth++ {
		children := level
		var entities []*catalogRecord
		entities, err = n.entities(ctx, state.id, children)
		level = nil
		for i, rec := range entities {
			if parent := rec.charged(); parent != "" {
				add(subject{parent, children[i].resource})
			}
			planned = planned || rec.entity.Plan != "" || rec.entity.Parent != "" && !rec.entity.Cascade
		}
	}
	if err == nil {
		err = n.prefetchRest(ctx, state.id, seen, planned)
	}
	if errors.Is(err, record.ErrUnreadable) {
		return nil
	}
	return err
}

// prefetchRest reads what subjects have on groups and totals and, if there are any, the limits of their plans.
func (n *Namespace) prefetchRest(ctx context.Context, namespaceID string, of map[subject]bool, planned bool) error {
	var plans map[string]string
	from := n.fromStore(ctx, nil) // for its records
	if planned {
		rs, _, err := from.records([]store.Key{record.SystemKey(namespaceID)}) // read before
		if err == nil && rs[0].plans {
			var ids []string
			for s := range of {
				ids = append(ids, s.entity)
			}
			plans, err = from.plansOf(namespaceID, ids)
		}
		if err != nil {
			return err
		}
	}
	var keys []store.Key
	for s := range of {
		keys = append(keys, planRecordsOf(namespaceID, plans[s.entity], s.resource)...)
		keys = append(keys, n.aggregateRecordsOf(namespaceID, s, plans[s.entity])...)
	}
	if len(keys) == 0 {
		return nil
	}
	_, _, err := from.records(distinct(keys))
	return err
}

// aggregateRecordsOf names the records of what a subject is probably charged to besides its resource.
func (n *Namespace) aggregateRecordsOf(namespaceID string, s subject, plan string) (keys []store.Key) {
	for _, a := range n.expected(namespaceID, s.resource) {
		for _, sc := range aggregateScopes(s.entity, plan, a) {
			keys = append(keys, sc.Key(namespaceID))
		}
	}
	return keys
}

// entities reads the records of subjects, and returns those of the entities themselves.
func (n *Namespace) entities(ctx context.Context, namespaceID string, of []subject) ([]*catalogRecord, error) {
	keys := make([]store.Key, 0, 4*len(of))
	at := make(map[store.Key]int, 4*len(of))
	for _, s := range of {
		wanted := append(recordsOf(namespaceID, s.entity, s.resource), n.aggregateRecordsOf(namespaceID, s, "")...)
		for _, k := range wanted {
			if _, ok := at[k]; !ok {
				at[k] = len(keys)
				keys = append(keys, k)
			}
		}
	}
	rs, _, err := n.records.Get(ctx, keys, n.load)
	if err != nil {
		return nil, err
	}
	entities := make([]*catalogRecord, len(of))
	for i, s := range of {
		entities[i] = rs[at[record.EntityKey(namespaceID, s.entity)]]
	}
	return entities, nil
}
