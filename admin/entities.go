package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/plans"
	"github.com/weirlimits/weir/internal/policy/prepaid"
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
	Parent string `json:"parent,omitempty"`
	// Plan has the limits of the entity where it has none of its own. It must exist. Without one, the plan of the
	// nearest ancestor that has one counts, whether that is charged or not.
	Plan     string            `json:"plan,omitempty"`
	Cascade  bool              `json:"cascade"`
	Metadata map[string]string `json:"metadata,omitempty"` // at most 16 KiB in total
	Created  time.Time         `json:"created"`            // set by [Entities.Create]
	Managed  *Managed          `json:"managed,omitempty"`  // set only by [Manifests.Declare]
}

// EntityUpdate describes changes to an entity. Nil fields stay as they are.
type EntityUpdate struct {
	Name     *string
	Parent   *string // "" removes the parent
	Plan     *string // "" removes the plan
	Cascade  *bool
	Metadata map[string]string // replaces all metadata; an empty map clears it
	// Was is the entity as it was read: if it is another by now, the error is [weir.ErrConflict], and nothing is
	// changed. Nil means that the change does not depend on it.
	Was *Entity
}

// EntityQuery selects entities: the children of Parent, or all, whose ids begin with Prefix; or those that name Plan.
type EntityQuery struct {
	Parent string
	Plan   string // cannot be combined with Parent or Prefix. Descendants that name none are not selected
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
	if err := checkOptional("parent", e.Parent); err != nil {
		return err
	}
	return checkOptional("plan", e.Plan)
}

func checkText(field, text string) error { return publicError(record.CheckText(field, text)) }

// Create creates an entity. It ignores e.Created and sets the time of creation itself.
//
// Errors: [weir.ErrExists]; [*weir.ConfigError] also if the parent or the plan does not exist, the chain would be too
// long, or a balance that is not 0 would be hidden.
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
		case n.Rec.Deleting:
			return n.deleting(weir.ErrExists)
		case n.Version != 0:
			return fmt.Errorf("entity %q: %w", e.ID, weir.ErrExists)
		}
		e.Created, e.Managed = record.Stamp(), nil
		n.set(&e)
		checks, err := s.place(ctx, &n, "")
		if err != nil {
			return err
		}
		moves, err := s.named(ctx, &n, "")
		if err == nil {
			err = s.keep(ctx, prepaid.Change{Record: n.Put().Record, Moves: e.Parent+e.Plan != "", New: true})
		}
		if err != nil {
			return err
		}
		ev := record.Event{Action: "entity.create", Subject: "entity:" + e.ID, After: e}
		return s.commit(ctx, space, []record.Event{ev}, slices.Concat(checks, moves, []store.Write{n.Put()})...)
	})
}

// Get returns an entity that was created, or [weir.ErrNotFound]. It always reads the store.
func (s *Entities) Get(ctx context.Context, id string) (Entity, error) {
	space, err := s.space(ctx, checkID("entity", id))
	if err != nil {
		return Entity{}, err
	}
	n, err := s.node(ctx, space, id)
	switch {
	case err != nil:
		return Entity{}, err
	case !n.Exists():
		return Entity{}, notFound("entity", id)
	}
	return n.entity(), nil
}

// Update changes an entity and returns the result. An update that changes nothing writes nothing. If an entity
// gets another parent, its descendants move with it; tokens already spent stay with the entities that were charged.
//
// Errors: [weir.ErrNotFound]; [*weir.ConfigError] also if the parent or the plan does not exist, the parent is below,
// the chain would be too long, or a balance would be hidden; [weir.ErrConflict] also while the entity is being deleted.
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
		case !n.Exists():
			return notFound("entity", id)
		case n.Rec.Deleting:
			return n.deleting(weir.ErrConflict)
		}
		if err := n.mustBe(u.Was); err != nil {
			return err
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
		moves, err := s.named(ctx, &n, before.Plan)
		moved := after.Parent != before.Parent || after.Plan != before.Plan
		if err = cmp.Or(err, s.keep(ctx, prepaid.Change{Record: n.Put().Record, Moves: moved})); err != nil {
			return err
		}
		ev := record.Event{Action: "entity.update", Subject: "entity:" + id, Before: before, After: after}
		return s.commit(ctx, space, []record.Event{ev}, slices.Concat(checks, moves, []store.Write{n.Put()})...)
	})
	if err != nil {
		after = Entity{}
	}
	return after, err
}

func (u EntityUpdate) apply(e Entity) Entity {
	e.Name = *cmp.Or(u.Name, &e.Name)
	e.Parent = *cmp.Or(u.Parent, &e.Parent)
	e.Plan = *cmp.Or(u.Plan, &e.Plan)
	e.Cascade = *cmp.Or(u.Cascade, &e.Cascade)
	if u.Metadata != nil {
		e.Metadata = maps.Clone(u.Metadata)
	}
	return e
}

func (e *Entity) equal(o *Entity) bool {
	return e.Name == o.Name && e.Parent == o.Parent && e.Plan == o.Plan && e.Cascade == o.Cascade &&
		maps.Equal(e.Metadata, o.Metadata)
}

// List returns the entities that were created, ordered by id. A Parent that has no children, or does not exist,
// yields an empty page. With a Prefix, the store reads only entities that have it.
func (s *Entities) List(ctx context.Context, query EntityQuery) (Page[Entity], error) {
	if len(query.Prefix) > record.MaxID {
		return Page[Entity]{}, configErr("prefix", "has %d bytes, ids have at most %d", len(query.Prefix), record.MaxID)
	}
	if query.Plan != "" && query.Parent+query.Prefix != "" {
		return Page[Entity]{}, configErr("plan", "cannot be combined with parent or prefix")
	}
	space, err := s.space(
		ctx, checkOptional("parent", query.Parent), checkText("prefix", query.Prefix),
		checkOptional("plan", query.Plan),
	)
	if err != nil {
		return Page[Entity]{}, err
	}
	if query.Plan != "" {
		return s.onPlan(ctx, space, query)
	}
	q := store.Query{
		Namespace: space, Kind: store.KindEntity, Prefix: query.Prefix, Parent: query.Parent, After: query.After,
		Max: query.Max,
	}
	return pageOf(ctx, s.catalog, q, entityOf)
}

// entityOf returns an entity that was created; nil for any other.
func entityOf(r store.Record) (*Entity, error) {
	n, err := nodeOf(r)
	if err != nil || !n.Exists() {
		return nil, err
	}
	e := n.entity()
	return &e, nil
}

// onPlan lists the entities that name a plan.
func (s *Entities) onPlan(ctx context.Context, space string, query EntityQuery) (Page[Entity], error) {
	if err := checkMax(query.Max); err != nil {
		return Page[Entity]{}, err
	}
	page, err := plans.Entities(ctx, s.parts.Store, space, query.Plan, query.After, query.Max)
	out := Page[Entity]{Next: page.Next}
	for _, r := range page.Records {
		e, err := entityOf(r)
		if err != nil {
			return Page[Entity]{}, err
		}
		if e != nil && e.Plan == query.Plan { // it may have changed since
			out.Items = append(out.Items, *e)
		}
	}
	return out, err
}
