package weir

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimits/weir/store"
)

// Entity is a caller that spends tokens. An entity need not be created to spend tokens or to have limits; creating it
// gives it a name, a parent and metadata.
type Entity struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"` // for people; at most 256 bytes
	// Parent is charged along with the entity if Cascade is set, the parent's parent if Cascade is set there, and so
	// on. It must exist. A chain has at most [MaxDepth] entities.
	Parent   string            `json:"parent,omitempty"`
	Cascade  bool              `json:"cascade"`
	Metadata map[string]string `json:"metadata,omitempty"` // at most 16 KiB in total
	Created  time.Time         `json:"created"`            // set by CreateEntity
	Managed  *Managed          `json:"managed,omitempty"`  // set only by Declare
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
	After  string // EntityPage.Next of the previous page
	Max    int    // maximum number of entities; 0 means 100, more than 1,000 means 1,000
}

// EntityPage is one page of entities, ordered by id. It may hold fewer than requested. Next is "" on the last page.
type EntityPage struct {
	Entities []Entity `json:"entities"`
	Next     string   `json:"next,omitempty"`
}

// maxMetadata bounds the total size in bytes of an entity's metadata, keys and values.
const maxMetadata = 16 << 10

func (e *Entity) validate() error {
	if err := checkID("entity", e.ID); err != nil {
		return err
	}
	if err := checkText("name", e.Name); err != nil {
		return err
	}
	if len(e.Name) > maxID {
		return configErr("name", "has %d bytes, at most %d are allowed", len(e.Name), maxID)
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
	if e.Parent == "" {
		return nil
	}
	if e.Parent == e.ID {
		return configErr("parent", "%q cannot be its own parent", e.ID)
	}
	return checkID("parent", e.Parent)
}

func checkText(field, text string) error {
	if !utf8.ValidString(text) {
		return configErr(field, "%q is not valid UTF-8", text)
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return configErr(field, "%q holds a control character", text)
		}
	}
	return nil
}

// CreateEntity creates an entity. It ignores e.Created and sets the time of creation itself.
//
// Errors: [ErrExists], [*ConfigError] (also if the parent does not exist or the chain would be too long),
// [ErrConflict], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) CreateEntity(ctx context.Context, e Entity) error {
	if err := e.validate(); err != nil {
		return err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return err
	}
	return l.admin().retry(ctx, "entity "+strconv.Quote(e.ID), func() error {
		n, err := l.admin().node(ctx, s.id, e.ID)
		switch {
		case err != nil:
			return err
		case n.rec.Deleting:
			return n.deleting(ErrExists)
		case n.version != 0:
			return fmt.Errorf("entity %q: %w", e.ID, ErrExists)
		}
		e.Created, e.Managed = stamp(), nil
		n.set(&e)
		checks, err := l.admin().place(ctx, &n, "")
		if err != nil {
			return err
		}
		ev := event{action: "entity.create", subject: "entity:" + e.ID, after: e}
		return l.admin().commit(ctx, s.id, []event{ev}, append(checks, n.put())...)
	})
}

// Entity returns an entity that was created. It always asks the store.
//
// Errors: [ErrNotFound], also if the namespace does not exist; [*ConfigError], store errors.
func (l *Limiter) Entity(ctx context.Context, id string) (Entity, error) {
	if err := checkID("entity", id); err != nil {
		return Entity{}, err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return Entity{}, err
	}
	n, err := l.admin().node(ctx, s.id, id)
	if err != nil {
		return Entity{}, err
	}
	if !n.exists() {
		return Entity{}, notFound("entity", id)
	}
	return n.entity(), nil
}

// UpdateEntity changes an entity and returns the result. An update that changes nothing writes nothing. If an entity
// gets another parent, its descendants move with it; tokens already spent stay with the entities that were charged.
//
// Errors: [ErrNotFound], [*ConfigError] (also if the parent does not exist, is a descendant, or the chain would be too
// long), [ErrConflict] (also while the entity is being deleted), store errors.
func (l *Limiter) UpdateEntity(ctx context.Context, id string, u EntityUpdate) (Entity, error) {
	if err := checkID("entity", id); err != nil {
		return Entity{}, err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return Entity{}, err
	}
	var after Entity
	err = l.admin().retry(ctx, "entity "+strconv.Quote(id), func() error {
		n, err := l.admin().node(ctx, s.id, id)
		switch {
		case err != nil:
			return err
		case !n.exists():
			return notFound("entity", id)
		case n.rec.Deleting:
			return n.deleting(ErrConflict)
		}
		before := n.entity()
		after = u.apply(before)
		if err := after.validate(); err != nil {
			return err
		}
		if after.equal(&before) {
			return nil
		}
		n.set(&after)
		var checks []store.Write
		if after.Parent != before.Parent && after.Parent != "" {
			if checks, err = l.admin().place(ctx, &n, before.Parent); err != nil {
				return err
			}
		}
		ev := event{"entity.update", "entity:" + id, before, after}
		return l.admin().commit(ctx, s.id, []event{ev}, append(checks, n.put())...)
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

// Entities returns the entities that were created, ordered by id. A Parent that has no children, or does not exist,
// yields an empty page. With a Prefix, the store reads only entities that have it.
//
// Errors: [ErrBadCursor], [*ConfigError], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) Entities(ctx context.Context, query EntityQuery) (EntityPage, error) {
	if query.Parent != "" {
		if err := checkID("parent", query.Parent); err != nil {
			return EntityPage{}, err
		}
	}
	if err := checkText("prefix", query.Prefix); err != nil {
		return EntityPage{}, err
	}
	if len(query.Prefix) > maxID {
		return EntityPage{}, configErr("prefix", "has %d bytes, ids have at most %d", len(query.Prefix), maxID)
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return EntityPage{}, err
	}
	page, err := l.admin().list(ctx, store.Query{
		Namespace: s.id, Kind: store.KindEntity, Prefix: query.Prefix, Parent: query.Parent, After: query.After,
		Max: query.Max,
	})
	if err != nil {
		return EntityPage{}, err
	}
	out := EntityPage{Next: page.Next}
	for _, r := range page.Records {
		n, err := nodeOf(r)
		if err != nil {
			return EntityPage{}, err
		}
		if n.exists() {
			out.Entities = append(out.Entities, n.entity())
		}
	}
	return out, nil
}
