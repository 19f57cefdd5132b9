package weir

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirlimits/weir/store"
)

// Changed makes the limiter read records again that were changed elsewhere, before the next decision that depends on
// them. The cached contents stay in use while the store does not answer, and if its answer cannot be used. Changed
// reads nothing itself; an unnecessary call costs one read.
//
// Keys are those of the store, with the namespace's opaque id. Records of kinds that decisions do not depend on are
// ignored. A key without a Sub means all limits of the entity, one without a Kind all records of the namespace, and
// [store.Registry] without a Kind the names of all namespaces.
func (l *Limiter) Changed(keys ...store.Key) {
	l.core.outdated(keys)
}

// ChangedWithin makes the limiter read everything in a namespace (by its opaque id) again, after a change whose records
// are not known: the limits of the system and of resources before the next decision, entities and their limits at some
// time within the given duration, so that a busy namespace is not read as a whole after each change. See
// [Limiter.Changed].
func (l *Limiter) ChangedWithin(namespaceID string, within time.Duration) {
	c := l.core
	c.views.ExpireWithin(func(v viewKey) (time.Duration, bool) {
		if v.kind == entityView || v.kind == limitsView {
			return within, v.space == namespaceID
		}
		return 0, v.kind != namespaceView && v.space == namespaceID
	})
	if s := c.known(namespaceID); s != nil {
		s.changed(change{all: true})
	}
}

// NamespaceIDs returns the opaque ids of the namespaces used through this limiter, in no particular order.
func (l *Limiter) NamespaceIDs() []string {
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]string, 0, len(c.spaces))
	for id := range c.spaces {
		ids = append(ids, id)
	}
	return ids
}

// CheckRecord reports why decisions could not use a catalog record, as a [*StoreError]. It returns nil for records of
// kinds that decisions do not depend on.
func CheckRecord(r store.Record) error {
	if k, ok := viewOf(r.Key); ok {
		_, err := k.decode(r)
		return err
	}
	return nil
}

// outdated makes everything derived from the records be read again.
func (c *core) outdated(keys []store.Key) {
	type owner struct{ space, id string }
	owners, spaces := make(map[owner]bool), make(map[string]bool) // for which many views are read again
	var views []viewKey
	for _, k := range keys {
		switch {
		// The epoch of a plan is only as new as that of its oldest view.
		case k.Kind == store.KindEntityLimits && (k.Sub == DefaultResource || k.Sub == ""):
			owners[owner{k.Namespace, k.ID}] = true
		case k.Kind == "":
			spaces[k.Namespace] = true
		default:
			if v, ok := viewOf(k); ok {
				views = append(views, v)
			}
		}
	}
	c.views.Expire(views...)
	if len(owners)+len(spaces) > 0 { // in one pass, since it looks at everything that is cached
		c.views.ExpireFunc(func(v viewKey) bool {
			if v.kind == namespaceView {
				return spaces[store.Registry]
			}
			return spaces[v.space] || v.kind == limitsView && owners[owner{v.space, v.id}]
		})
	}
	for _, k := range keys { // plans last: one made earlier could be based on a view about to change
		if k.Kind == store.KindNamespace || k.Kind == "" && k.Namespace == store.Registry {
			c.registry.Add(1)
		} else if ch, ok := changeOf(k); ok {
			if s := c.known(k.Namespace); s != nil {
				s.changed(ch)
			}
		}
	}
}

// viewOf returns the view that a record is decoded to, if there is one.
func viewOf(k store.Key) (viewKey, bool) {
	switch k.Kind {
	case store.KindEntity:
		return viewKey{k.Namespace, entityView, k.ID, ""}, true
	case store.KindEntityLimits:
		return viewKey{k.Namespace, limitsView, k.ID, k.Sub}, true
	case store.KindResourceLimits:
		return viewKey{k.Namespace, resourceView, k.ID, ""}, true
	case store.KindSystem:
		return viewKey{k.Namespace, systemView, "", ""}, true
	case store.KindNamespace:
		return viewKey{kind: namespaceView, id: k.ID}, true
	default: // nothing of it is cached
		return viewKey{}, false
	}
}

// changeOf returns which plans the change of a record affects.
func changeOf(k store.Key) (change, bool) {
	switch k.Kind {
	case store.KindEntity:
		return change{entity: k.ID}, true
	case store.KindEntityLimits:
		if k.Sub == DefaultResource {
			return change{entity: k.ID}, true
		}
		return change{entity: k.ID, resource: k.Sub}, true
	case store.KindResourceLimits:
		return change{resource: k.ID}, true
	case store.KindSystem, "":
		return change{all: true}, true
	default:
		return change{}, false
	}
}

// space is what this process knows of a namespace: the plans made so far, recent changes, and the waiters.
type space struct {
	id     string
	plans  *plans // with the entity's own limits
	chains *plans // without the entity's own limits: for requests that bring limits
	hits   counter
	queues queues
	// unavailable is the on_unavailable of the system's record, as last read.
	unavailable atomic.Pointer[OnUnavailable]

	generation atomic.Uint64 // number of changes made through this process
	mu         sync.Mutex
	changes    []change // the most recent ones
}

// change is the scope of a change of the catalog.
type change struct {
	all    bool   // every plan
	entity string // plans that charge this entity…
	// …or that are for this resource; if both are set, plans that charge the entity and are for the resource.
	resource string
}

func newSpace(id string, entries int) *space {
	return &space{id: id, plans: newPlans(entries), chains: newPlans(entries)}
}

// maxChanges is how many changes are remembered individually; a plan that missed more is made again.
const maxChanges = 256

// changed invalidates the plans that a change affects.
func (s *space) changed(c change) {
	defer s.queues.changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changes) == maxChanges {
		s.changes = slices.Delete(s.changes, 0, maxChanges/2)
	}
	s.changes = append(s.changes, c)
	s.generation.Add(1)
}

// current reports whether nothing that affects a plan has changed through this process since the plan was made.
func (s *space) current(p *plan) bool {
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

func (c change) concerns(p *plan) bool {
	if c.all || c.entity == "" {
		return c.all || c.resource == p.resource
	}
	return (c.resource == "" || c.resource == p.resource) &&
		slices.Contains(p.chain, c.entity)
}

// counter counts on several cache lines, because every decision counts.
type counter [16]struct {
	n atomic.Uint64
	_ [56]byte
}

// add increments the cache line of the goroutine, chosen by the address of its stack.
func (c *counter) add() {
	var here byte
	c[uintptr(unsafe.Pointer(&here))>>12%uintptr(len(c))].n.Add(1)
}

func (c *counter) total() (n uint64) {
	for i := range c {
		n += c[i].n.Load()
	}
	return n
}
