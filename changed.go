package weir

import (
	"time"

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
		case k.Kind == store.KindEntityLimits && (k.Sub == DefaultResource || k.Sub == ""): // the epoch of a plan is only as new as that of its oldest view
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
