package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Namespaces manages the namespaces of the limiter's store.
type Namespaces struct{ catalog }

// Namespace is an isolated set of entities, limits and buckets.
type Namespace struct {
	Name    string     `json:"name"`
	ID      string     `json:"id"`                // opaque and never reused; the store keeps the data under it
	Created time.Time  `json:"created,omitzero"`  // zero for "default" and for orphans
	Deleted *time.Time `json:"deleted,omitempty"` // when it was deleted; since then, it can only be recovered or purged
	// MaxBuckets is how many live buckets each server lets it have; 0 is the server's default.
	MaxBuckets int `json:"max_buckets,omitempty"`
}

// NamespaceQuery selects namespaces.
type NamespaceQuery struct {
	Deleted bool   // includes namespaces that were deleted and not yet purged
	After   string // Next of the previous page
	Max     int    // maximum number of namespaces; 0 means 100, more than 1,000 means 1,000
}

// defaultNamespace is the namespace that every store has. It has a record only if something was set for it.
var defaultNamespace = Namespace{Name: record.DefaultNamespace, ID: record.DefaultNamespace}

// find returns a namespace by name, and its record.
func (s *Namespaces) find(ctx context.Context, name string) (store.Record, Namespace, error) {
	r, err := s.get(ctx, record.NamespaceKey(name))
	if err != nil {
		return r, Namespace{}, err
	}
	switch {
	case r.Version == 0 && name == record.DefaultNamespace:
		return r, defaultNamespace, nil
	case r.Version == 0:
		return r, Namespace{}, notFound("namespace", name)
	}
	ns, err := namespaceOf(r)
	return r, ns, err
}

func namespaceOf(r store.Record) (Namespace, error) {
	var nr record.Namespace
	err := record.Decode(r, &nr)
	return Namespace{r.Key.ID, nr.ID, nr.Created, nr.Deleted, nr.MaxBuckets}, err
}

// Create creates a namespace under a new opaque id. "default" exists in every store.
//
// Errors: [weir.ErrExists], also if the namespace was deleted and not yet purged: recover or purge it first.
func (s *Namespaces) Create(ctx context.Context, name string) (Namespace, error) {
	if err := checkID("namespace", name); err != nil {
		return Namespace{}, err
	}
	if name == record.DefaultNamespace {
		return Namespace{}, fmt.Errorf("namespace %q: %w", name, weir.ErrExists)
	}
	var ns Namespace
	err := policy.Retry(ctx, "namespace "+strconv.Quote(name), func() error {
		r, err := s.get(ctx, record.NamespaceKey(name))
		if err != nil {
			return err
		}
		if r.Version != 0 {
			if old, err := namespaceOf(r); err != nil {
				return err
			} else if old.Deleted != nil {
				return fmt.Errorf("namespace %q was deleted, recover it or purge it first: %w", name, weir.ErrExists)
			}
			return fmt.Errorf("namespace %q: %w", name, weir.ErrExists)
		}
		ns = Namespace{Name: name, ID: "n" + strings.ToLower(rand.Text()[:16]), Created: record.Stamp()}
		id := record.Put(record.NamespaceIDKey(ns.ID), 0, record.NamespaceID{Name: name})
		id.Record.Parent = name // so that the ids of a name can be found
		ev := record.Event{Action: "namespace.create", Subject: "namespace:" + name, After: ns}
		return s.commit(ctx, store.Registry, []record.Event{ev}, ns.put(r), id)
	})
	if err != nil {
		return Namespace{}, err
	}
	return ns, nil
}

// put returns the write of the namespace over its record as it was read.
func (ns *Namespace) put(r store.Record) store.Write {
	return record.Put(r.Key, r.Version, record.Namespace{
		ID: ns.ID, Created: ns.Created, Deleted: ns.Deleted, MaxBuckets: ns.MaxBuckets,
	})
}

// Get returns a namespace by name, including one that was deleted and not yet purged. It always reads the store.
func (s *Namespaces) Get(ctx context.Context, name string) (Namespace, error) {
	if err := checkID("namespace", name); err != nil {
		return Namespace{}, err
	}
	_, ns, err := s.find(ctx, name)
	return ns, err
}

// firstNamed is the cursor after "default", which comes first.
const firstNamed = "*"

// List returns the namespaces of the store: "default", then the others by name.
func (s *Namespaces) List(ctx context.Context, query NamespaceQuery) (Page[Namespace], error) {
	q := store.Query{Namespace: store.Registry, Kind: store.KindNamespace, After: query.After, Max: query.Max}
	first := query.After == ""
	inStore := defaultNamespace
	if first {
		var err error
		if inStore, err = s.Get(ctx, record.DefaultNamespace); err != nil {
			return Page[Namespace]{}, err
		}
	}
	switch {
	case query.After == firstNamed:
		q.After = ""
	case first && query.Max == 1:
		return Page[Namespace]{[]Namespace{inStore}, firstNamed}, nil
	case first && query.Max >= 0:
		q.Max = store.PageSize(query.Max) - 1
	}
	page, err := pageOf(ctx, s.catalog, q, func(r store.Record) (*Namespace, error) {
		ns, err := namespaceOf(r)
		if ns.Deleted != nil && !query.Deleted || ns.Name == record.DefaultNamespace {
			return nil, err
		}
		return &ns, err
	})
	if err == nil && first {
		page.Items = slices.Insert(page.Items, 0, inStore)
	}
	return page, err
}

// Delete closes a namespace. Its requests fail with [weir.ErrNotFound]: at once through this process, elsewhere within
// [weir.Config.CacheTTL]. Limiters with a [weir.Config.NamespaceID] continue to work. The data stays until it is
// purged.
//
// Errors: [weir.ErrNotFound], also if it is deleted already; [*weir.ConfigError] for "default".
func (s *Namespaces) Delete(ctx context.Context, name string) error {
	if err := checkNamespace(name); err != nil {
		return err
	}
	_, err := s.change(ctx, name, "namespace.delete", func(ns *Namespace) error {
		if ns.Deleted != nil {
			return notFound("namespace", name)
		}
		now := record.Stamp()
		ns.Deleted = &now
		return nil
	})
	return err
}

// Recover reopens a namespace that was deleted and not yet purged, with everything in it. If the namespace was not
// deleted, Recover returns it as it is.
func (s *Namespaces) Recover(ctx context.Context, name string) (Namespace, error) {
	return s.change(ctx, name, "namespace.recover", func(ns *Namespace) error {
		ns.Deleted = nil
		return nil
	})
}

// SetMaxBuckets sets how many live buckets each server lets a namespace have: buckets that the server has debited and
// that are not full again. Requests that need another bucket fail with [weir.ErrBucketQuota]. Several servers allow
// several times as many; a limiter that is not in a server does not bound them. 0 removes the number, so that the
// server's applies: 1,000,000 or, if it is given, --max-buckets of weir serve, which a greater number does not exceed.
// Servers notice within [weir.Config.CacheTTL].
//
// Errors: [weir.ErrNotFound], also if the namespace is deleted; [*weir.ConfigError] for a negative number.
func (s *Namespaces) SetMaxBuckets(ctx context.Context, name string, most int) (Namespace, error) {
	if most < 0 {
		return Namespace{}, configErr("max_buckets", "must not be negative")
	}
	return s.change(ctx, name, "namespace.max_buckets", func(ns *Namespace) error {
		if ns.Deleted != nil {
			return notFound("namespace", name)
		}
		ns.MaxBuckets = most
		return nil
	})
}

func (s *Namespaces) change(ctx context.Context, name, action string, f func(*Namespace) error) (Namespace, error) {
	if err := checkID("namespace", name); err != nil {
		return Namespace{}, err
	}
	var after Namespace
	err := policy.Retry(ctx, "namespace "+strconv.Quote(name), func() error {
		r, before, err := s.find(ctx, name)
		if err != nil {
			return err
		}
		after = before
		if err := f(&after); err != nil {
			return err
		}
		if after == before {
			return nil
		}
		ev := record.Event{Action: action, Subject: "namespace:" + name, Before: before, After: after}
		return s.commit(ctx, store.Registry, []record.Event{ev}, after.put(r))
	})
	if err != nil {
		return Namespace{}, err
	}
	return after, nil
}

// checkNamespace accepts the names of namespaces that can be deleted.
func checkNamespace(name string) error {
	if name == record.DefaultNamespace {
		return configErr("namespace", "%q is part of every store and cannot be deleted", name)
	}
	return checkID("namespace", name)
}
