package weir

import (
	"time"

	"github.com/weirlimits/weir/store"
)

// Changed has records read anew that somebody else changed, before the next decision that they concern. What was
// remembered of them serves on while the store does not answer, and where what it answers cannot be used. It reads
// nothing itself, and to call it once too often costs a read.
//
// Keys are those of the store, with the opaque id of the namespace; records of kinds that decisions do not go by are
// passed over. Without a Sub all limits of the entity are meant, without a Kind all records of the namespace, and of
// [store.Registry] the names of all namespaces.
func (l *Limiter) Changed(keys ...store.Key) {
	l.core.outdated(keys)
}

// ChangedWithin has all of a namespace, by its opaque id, read anew, because something in it was changed and nobody knows
// what: the limits of the system and of resources before the next decision, entities and their limits at some time within
// so long, or a busy namespace would be read as a whole at each change. See [Limiter.Changed].
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

// NamespaceIDs returns the opaque ids of the namespaces that were used through this limiter, in no order.
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

// CheckRecord reports why decisions could not go by a record of the catalog, as a [*StoreError]. Of kinds that they do not
// go by, all are good.
func CheckRecord(r store.Record) error {
	if k, ok := viewOf(r.Key); ok {
		_, err := k.decode(r)
		return err
	}
	return nil
}

// outdated has what is made of records read anew.
func (c *core) outdated(keys []store.Key) {
	type owner struct{ space, id string }
	owners, spaces := make(map[owner]bool), make(map[string]bool) // of which much is read anew
	var views []viewKey
	for _, k := range keys {
		switch {
		case k.Kind == store.KindEntityLimits && (k.Sub == DefaultResource || k.Sub == ""): // read with those, a plan's epoch is as new
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
	if len(owners)+len(spaces) > 0 { // in one go, since that looks at everything remembered
		c.views.ExpireFunc(func(v viewKey) bool {
			if v.kind == namespaceView {
				return spaces[store.Registry]
			}
			return spaces[v.space] || v.kind == limitsView && owners[owner{v.space, v.id}]
		})
	}
	for _, k := range keys { // plans last, or one might be made of what is about to change
		if k.Kind == store.KindNamespace || k.Kind == "" && k.Namespace == store.Registry {
			c.registry.Add(1)
		} else if ch, ok := changeOf(k); ok {
			if s := c.known(k.Namespace); s != nil {
				s.changed(ch)
			}
		}
	}
}

// viewOf returns the view that is made of a record, if there is one.
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
	default: // nothing is remembered of it
		return viewKey{}, false
	}
}

// changeOf returns which plans a record's change concerns.
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
