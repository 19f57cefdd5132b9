package weir

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
)

// Namespace is an isolated set of entities, limits and buckets.
type Namespace struct {
	Name    string     `json:"name"`
	ID      string     `json:"id"`                // opaque and never reused; the store keeps the data under it
	Created time.Time  `json:"created,omitzero"`  // zero for "default" and for orphans
	Deleted *time.Time `json:"deleted,omitempty"` // when it was deleted; since then, it can only be recovered or purged
}

// NamespaceQuery selects namespaces.
type NamespaceQuery struct {
	Deleted bool   // includes namespaces that were deleted and not yet purged
	After   string // NamespacePage.Next of the previous page
	Max     int    // maximum number of namespaces; 0 means 100, more than 1,000 means 1,000
}

// NamespacePage is one page of namespaces. It may hold fewer than requested, even none. Next is "" on the last page.
type NamespacePage struct {
	Namespaces []Namespace `json:"namespaces"`
	Next       string      `json:"next,omitempty"`
}

func (c *core) namespace(ctx context.Context, name string) (store.Record, Namespace, error) {
	r, err := c.get(ctx, namespaceKey(name))
	if err != nil {
		return r, Namespace{}, err
	}
	if r.Version == 0 {
		return r, Namespace{}, notFound("namespace", name)
	}
	ns, err := namespaceOf(r)
	return r, ns, err
}

func namespaceOf(r store.Record) (Namespace, error) {
	var nr namespaceRecord
	err := decodeRecord(r, &nr)
	return Namespace{r.Key.ID, nr.ID, nr.Created, nr.Deleted}, err
}

// CreateNamespace creates a namespace under a new opaque id. "default" exists in every store.
//
// Errors: [ErrExists] (also if it was deleted and not yet purged: recover or purge it first), [*ConfigError],
// [ErrConflict], store errors.
func (l *Limiter) CreateNamespace(ctx context.Context, name string) (Namespace, error) {
	if err := checkID("namespace", name); err != nil {
		return Namespace{}, err
	}
	if name == DefaultNamespace {
		return Namespace{}, fmt.Errorf("namespace %q: %w", name, ErrExists)
	}
	var ns Namespace
	err := l.admin().retry(ctx, "namespace "+strconv.Quote(name), func() error {
		r, err := l.admin().get(ctx, namespaceKey(name))
		if err != nil {
			return err
		}
		if r.Version != 0 {
			if old, err := namespaceOf(r); err != nil {
				return err
			} else if old.Deleted != nil {
				return fmt.Errorf("namespace %q was deleted, recover it or purge it first: %w", name, ErrExists)
			}
			return fmt.Errorf("namespace %q: %w", name, ErrExists)
		}
		ns = Namespace{Name: name, ID: "n" + strings.ToLower(rand.Text()[:16]), Created: stamp()}
		id := put(namespaceIDKey(ns.ID), 0, namespaceIDRecord{Name: name})
		id.Record.Parent = name // so that the ids of a name can be found
		ev := event{action: "namespace.create", subject: "namespace:" + name, after: ns}
		return l.admin().commit(
			ctx, store.Registry, []event{ev}, put(r.Key, 0, namespaceRecord{ID: ns.ID, Created: ns.Created}), id,
		)
	})
	if err != nil {
		return Namespace{}, err
	}
	return ns, nil
}

// NamespaceByName returns a namespace, including one that was deleted and not yet purged. It always asks the store.
//
// Errors: [ErrNotFound], [*ConfigError], store errors.
func (l *Limiter) NamespaceByName(ctx context.Context, name string) (Namespace, error) {
	if name == DefaultNamespace {
		return Namespace{Name: name, ID: name}, nil
	}
	if err := checkID("namespace", name); err != nil {
		return Namespace{}, err
	}
	_, ns, err := l.admin().namespace(ctx, name)
	return ns, err
}

// firstNamed is the cursor after "default", which no store lists.
const firstNamed = "*"

// Namespaces returns the namespaces of the store: "default", then the others by name.
//
// Errors: [ErrBadCursor], [*ConfigError], store errors.
func (l *Limiter) Namespaces(ctx context.Context, query NamespaceQuery) (NamespacePage, error) {
	var out NamespacePage
	q := store.Query{Namespace: store.Registry, Kind: store.KindNamespace, After: query.After, Max: query.Max}
	switch query.After {
	case "":
		out.Namespaces = []Namespace{{Name: DefaultNamespace, ID: DefaultNamespace}}
		if query.Max == 1 {
			out.Next = firstNamed
			return out, nil
		}
		if query.Max >= 0 {
			q.Max = store.PageSize(query.Max) - 1
		}
	case firstNamed:
		q.After = ""
	}
	page, err := l.admin().list(ctx, q)
	if err != nil {
		return NamespacePage{}, err
	}
	out.Next = page.Next
	for _, r := range page.Records {
		ns, err := namespaceOf(r)
		if err != nil {
			return NamespacePage{}, err
		}
		if ns.Deleted == nil || query.Deleted {
			out.Namespaces = append(out.Namespaces, ns)
		}
	}
	return out, nil
}

// DeleteNamespace closes a namespace. Its requests fail with [ErrNotFound]: at once through this process, elsewhere
// within [Config.CacheTTL]. Limiters with a [Config.NamespaceID] continue to work. The data stays until it is purged.
//
// Errors: [ErrNotFound] (also if it is deleted already), [*ConfigError] for "default", [ErrConflict], store errors.
func (l *Limiter) DeleteNamespace(ctx context.Context, name string) error {
	_, err := l.changeNamespace(ctx, name, "namespace.delete", func(ns *Namespace) error {
		if ns.Deleted != nil {
			return notFound("namespace", name)
		}
		now := stamp()
		ns.Deleted = &now
		return nil
	})
	return err
}

// RecoverNamespace reopens a namespace that was deleted and not yet purged, with everything in it. If the namespace was
// not deleted, RecoverNamespace returns it as it is.
//
// Errors: [ErrNotFound], [*ConfigError], [ErrConflict], store errors.
func (l *Limiter) RecoverNamespace(ctx context.Context, name string) (Namespace, error) {
	if name == DefaultNamespace {
		return Namespace{Name: name, ID: name}, nil
	}
	return l.changeNamespace(ctx, name, "namespace.recover", func(ns *Namespace) error {
		ns.Deleted = nil
		return nil
	})
}

func (l *Limiter) changeNamespace(
	ctx context.Context, name, action string, f func(*Namespace) error,
) (Namespace, error) {
	if err := checkNamespace(name); err != nil {
		return Namespace{}, err
	}
	var after Namespace
	err := l.admin().retry(ctx, "namespace "+strconv.Quote(name), func() error {
		r, before, err := l.admin().namespace(ctx, name)
		if err != nil {
			return err
		}
		after = before
		if err := f(&after); err != nil {
			return err
		}
		if after.Deleted == before.Deleted {
			return nil
		}
		ev := event{action, "namespace:" + name, before, after}
		return l.admin().commit(ctx, store.Registry, []event{ev},
			put(r.Key, r.Version, namespaceRecord{ID: after.ID, Created: after.Created, Deleted: after.Deleted}))
	})
	if err != nil {
		return Namespace{}, err
	}
	return after, nil
}

// checkNamespace accepts the names of namespaces that can be changed.
func checkNamespace(name string) error {
	if name == DefaultNamespace {
		return configErr("namespace", "%q is part of every store and cannot be deleted", name)
	}
	return checkID("namespace", name)
}

// OrphanNamespaces returns namespaces without a name, by opaque id: the remains of purges that did not finish. To
// finish one, purge its id. Name is the namespace's former name, which may be in use again. The query's Deleted field
// is ignored.
//
// Errors: [ErrBadCursor], [*ConfigError], store errors.
func (l *Limiter) OrphanNamespaces(ctx context.Context, query NamespaceQuery) (NamespacePage, error) {
	page, err := l.admin().list(ctx, store.Query{
		Namespace: store.Registry, Kind: store.KindNamespaceID, After: query.After, Max: query.Max,
	})
	if err != nil {
		return NamespacePage{}, err
	}
	out := NamespacePage{Next: page.Next}
	for rs := range slices.Chunk(page.Records, chunk) {
		orphans, err := l.admin().orphans(ctx, rs)
		if err != nil {
			return NamespacePage{}, err
		}
		for i := range orphans {
			out.Namespaces = append(out.Namespaces, orphans[i].Namespace)
		}
	}
	return out, nil
}

type orphan struct {
	Namespace
	record store.Record // the record of its id
}

// orphans returns those of the id records that no name refers to.
func (c *core) orphans(ctx context.Context, ids []store.Record) ([]orphan, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	keys := make([]store.Key, len(ids))
	found := make([]orphan, len(ids))
	for i, r := range ids {
		var id namespaceIDRecord
		if err := decodeRecord(r, &id); err != nil {
			return nil, err
		}
		found[i] = orphan{Namespace{Name: id.Name, ID: r.Key.ID}, r}
		keys[i] = namespaceKey(id.Name)
	}
	names, err := c.getAll(ctx, keys...)
	if err != nil {
		return nil, err
	}
	var out []orphan
	for i, r := range names {
		var ns Namespace
		if r.Version != 0 {
			if ns, err = namespaceOf(r); err != nil {
				return nil, err
			}
		}
		if ns.ID != found[i].ID {
			out = append(out, found[i])
		}
	}
	return out, nil
}
