package policy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

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
	id       string
	full     *policies // with the entity's own limits
	parents  *policies // without the entity's own limits: for requests that bring limits

	// onUnavailable is the mode of the system's record, as last read.
	onUnavailable atomic.Pointer[Mode]

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
	s := n.state(rs[0].namespace.ID)
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
	return n.state(rs[0].namespace.ID), false
}

// change is the scope of a change of the catalog.
type change struct {
	all    bool   // every policy
	entity string // policies that charge this entity…
	// …or that are for this resource; if both are set, policies that charge the entity and are for the resource.
	resource string
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
	if c.all || c.entity == "" {
		return c.all || c.resource == p.Resource
	}
	return (c.resource == "" || c.resource == p.Resource) &&
		slices.Contains(p.Chain, c.entity)
}

// read remembers the mode of the system's record as read at a generation, unless it may have changed since.
func (s *namespaceState) read(m Mode, generation uint64) {
	if have := s.onUnavailable.Load(); have != nil && *have == m {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation.Load() == generation {
		s.onUnavailable.Store(&m)
	}
}
