package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Entities creates, changes and reads the callers of a namespace.
type Entities struct{ catalog }

// Entity is a caller that spends tokens. An entity need not be created to spend tokens or to have limits; creating it
// gives it a name, a parent and metadata.
type Entity struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"` // for people; at most 256 bytes
	// Parent is charged along with the entity if Cascade is set, the parent's parent if Cascade is set there, and so
	// on. It must exist. A chain has at most [weir.MaxDepth] entities.
	Parent   string            `json:"parent,omitempty"`
	Cascade  bool              `json:"cascade"`
	Metadata map[string]string `json:"metadata,omitempty"` // at most 16 KiB in total
	Created  time.Time         `json:"created"`            // set by [Entities.Create]
	Managed  *Managed          `json:"managed,omitempty"`  // set only by [Manifests.Declare]
}

// EntityUpdate describes changes to an entity. Nil fields stay as they are.
type EntityUpdate struct {
	Name     *string
	Parent   *string // "" removes the parent
	Cascade  *bool
	Metadata map[string]string // replaces all metadata; an empty map clears it
}

// EntityQuery selects entities: the children of Parent, or all, whose ids begin with Prefix.
type EntityQuery struct {
	Parent string
	Prefix string // case-sensitive; "" matches every id
	After  string // Next of the previous page
	Max    int    // maximum number of entities; 0 means 100, more than 1,000 means 1,000
}

// maxMetadata bounds the total size in bytes of an entity's metadata, keys and values.
const maxMetadata = 16 << 10

// Validate reports what is wrong with an entity, as a [*weir.ConfigError]. It does not check that the parent exists.
func (e *Entity) Validate() error {
	if err := checkID("entity", e.ID); err != nil {
		return err
	}
	if err := checkText("name", e.Name); err != nil {
		return err
	}
	if len(e.Name) > record.MaxID {
		return configErr("name", "has %d bytes, at most %d are allowed", len(e.Name), record.MaxID)
	}
	size := 0
	for k, v := range e.Metadata {
		if k == "" {
			return configErr("metadata", "has an empty key")
		}
		if err := checkText("metadata", k); err != nil {
			return err
		}
		if !utf8.ValidString(v) {
			return configErr("metadata."+k, "is not valid UTF-8")
		}
		size += len(k) + len(v)
	}
	if size > maxMetadata {
		return configErr("metadata", "has %d bytes, at most %d are allowed", size, maxMetadata)
	}
	if e.Parent == e.ID {
		return configErr("parent", "%q cannot be its own parent", e.ID)
	}
	return checkOptional("parent", e.Parent)
}

func checkText(field, text string) error { return publicError(record.CheckText(field, text)) }

// Create creates an entity. It ignores e.Created and sets the time of creation itself.
//
// Errors: [weir.ErrExists]; [*weir.ConfigError] also if the parent does not exist or the chain would be too long.
func (s *Entities) Create(ctx context.Context, e Entity) error {
	space, err := s.space(ctx, e.Validate())
	if err != nil {
		return err
	}
	return policy.Retry(ctx, "entity "+strconv.Quote(e.ID), func() error {
		n, err := s.node(ctx, space, e.ID)
		switch {
		case err != nil:
			return err
		case n.rec.Deleting:
			return n.deleting(weir.ErrExists)
		case n.version != 0:
			return fmt.Errorf("entity %q: %w", e.ID, weir.ErrExists)
		}
		e.Created, e.Managed = record.Stamp(), nil
		n.set(&e)
		checks, err := s.place(ctx, &n, "")
		if err != nil {
			return err
		}
		ev := record.Event{Action: "entity.create", Subject: "entity:" + e.ID, After: e}
		return s.commit(ctx, space, []record.Event{ev}, append(checks, n.put())...)
	})
}

// Get returns an entity that was created, or [weir.ErrNotFound]. It always reads the store.
func (s *Entities) Get(ctx context.Context, id string) (Entity, error) {
	space, err := s.space(ctx, checkID("entity", id))
	if err != nil {
		return Entity{}, err
	}
	n, err := s.node(ctx, space, id)
	if err != nil {
		return Entity{}, err
	}
	if !n.exists() {
		return Entity{}, notFound("entity", id)
	}
	return n.entity(), nil
}

// Update changes an entity and returns the result. An update that changes nothing writes nothing. If an entity
// gets another parent, its descendants move with it; tokens already spent stay with the entities that were charged.
//
// Errors: [weir.ErrNotFound]; [*weir.ConfigError] also if the parent does not exist, is a descendant, or the chain
// would be too long; [weir.ErrConflict] also while the entity is being deleted.
func (s *Entities) Update(ctx context.Context, id string, u EntityUpdate) (Entity, error) {
	space, err := s.space(ctx, checkID("entity", id))
	if err != nil {
		return Entity{}, err
	}
	var after Entity
	err = policy.Retry(ctx, "entity "+strconv.Quote(id), func() error {
		n, err := s.node(ctx, space, id)
		switch {
		case err != nil:
			return err
		case !n.exists():
			return notFound("entity", id)
		case n.rec.Deleting:
			return n.deleting(weir.ErrConflict)
		}
		before := n.entity()
		after = u.apply(before)
		if err := after.Validate(); err != nil {
			return err
		}
		if after.equal(&before) {
			return nil
		}
		n.set(&after)
		var checks []store.Write
		if after.Parent != before.Parent && after.Parent != "" {
			if checks, err = s.place(ctx, &n, before.Parent); err != nil {
				return err
			}
		}
		ev := record.Event{Action: "entity.update", Subject: "entity:" + id, Before: before, After: after}
		return s.commit(ctx, space, []record.Event{ev}, append(checks, n.put())...)
	})
	if err != nil {
		return Entity{}, err
	}
	return after, nil
}

func (u EntityUpdate) apply(e Entity) Entity {
	e.Name = *cmp.Or(u.Name, &e.Name)
	e.Parent = *cmp.Or(u.Parent, &e.Parent)
	e.Cascade = *cmp.Or(u.Cascade, &e.Cascade)
	if u.Metadata != nil {
		e.Metadata = maps.Clone(u.Metadata)
	}
	return e
}

func (e *Entity) equal(o *Entity) bool {
	return e.Name == o.Name && e.Parent == o.Parent && e.Cascade == o.Cascade && maps.Equal(e.Metadata, o.Metadata)
}

// List returns the entities that were created, ordered by id. A Parent that has no children, or does not exist,
// yields an empty page. With a Prefix, the store reads only entities that have it.
func (s *Entities) List(ctx context.Context, query EntityQuery) (Page[Entity], error) {
	if len(query.Prefix) > record.MaxID {
		return Page[Entity]{}, configErr("prefix", "has %d bytes, ids have at most %d", len(query.Prefix), record.MaxID)
	}
	space, err := s.space(ctx, checkOptional("parent", query.Parent), checkText("prefix", query.Prefix))
	if err != nil {
		return Page[Entity]{}, err
	}
	q := store.Query{
		Namespace: space, Kind: store.KindEntity, Prefix: query.Prefix, Parent: query.Parent, After: query.After,
		Max: query.Max,
	}
	return pageOf(ctx, s.catalog, q, func(r store.Record) (*Entity, error) {
		n, err := nodeOf(r)
		if err != nil || !n.exists() {
			return nil, err
		}
		e := n.entity()
		return &e, nil
	})
}
