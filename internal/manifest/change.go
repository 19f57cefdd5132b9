package manifest

import (
	"maps"
	"slices"
	"strconv"

	"github.com/weirlimits/weir"
)

// Action is what becomes of a record.
type Action string

// What becomes of a record.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
	Adopt  Action = "adopt" // it exists and no manifest manages it: this one does then, and makes it what it declares
)

// Change is what becomes of one record.
type Change struct {
	Action Action  `json:"action"`
	Target string  `json:"target"` // for people: "resource gpt-4"
	Own    bool    `json:"own,omitempty"`
	Entity string  `json:"entity,omitempty"`
	On     string  `json:"resource,omitempty"`
	Fields []Field `json:"fields,omitempty"`
	Moves  Moves   `json:"moves,omitempty"`
	// Applies is, where limits are new or go, what changes of those that apply; From says where the others are from that
	// apply without them. Both are empty if there are none.
	Applies []Field `json:"applies,omitempty"`
	From    string  `json:"from,omitempty"`
	// Outside says that a managed record is not as its manifest made it: somebody else changed it.
	Outside bool     `json:"outside,omitempty"`
	Touches *Touches `json:"touches,omitempty"` // of one that changes limits

	key    Key
	before weir.Declared
	after  *Record
	phase  int // when it is made
}

// Limits returns the limits that the record is to have: none if it is removed, or is an entity itself, or was read from
// JSON.
func (c *Change) Limits() []weir.Limit {
	if c.after == nil || c.after.Limits == nil {
		return nil
	}
	return c.after.Limits.Limits
}

// entityDiff says what changes of an entity. Whether that loosens or tightens depends on the parents' limits; that a
// parent is charged that was not can only tighten.
func entityDiff(b, a *weir.Entity) (fs []Field, moves Moves) {
	add := func(name, old, text string, m Moves) {
		if old != text {
			fs = append(fs, Field{Name: name, Old: old, New: text, Moves: m})
			moves = moves.and(m)
		}
	}
	charged := func(e *weir.Entity) bool { return e.Cascade && e.Parent != "" }
	var m Moves
	switch {
	case charged(a) && charged(b) && a.Parent != b.Parent:
		m = Both
	case charged(a) && !charged(b):
		m = Tightens
	case !charged(a) && charged(b):
		m = Loosens
	}
	add("name", b.Name, a.Name, Same)
	add("parent", b.Parent, a.Parent, m)
	add("cascade", strconv.FormatBool(b.Cascade), strconv.FormatBool(a.Cascade), m)
	keys := maps.Clone(b.Metadata)
	if keys == nil {
		keys = make(map[string]string)
	}
	maps.Copy(keys, a.Metadata)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		old, had := b.Metadata[k]
		text, has := a.Metadata[k]
		if had != has || old != text {
			fs = append(fs, Field{Name: "metadata." + quote(k), Old: orNone(old, had), New: orNone(text, has)})
		}
	}
	return fs, moves
}

func thresholdsText(t weir.Thresholds) string {
	if t == nil {
		return ""
	}
	return t.String()
}

func orNone(text string, given bool) string {
	if given {
		return strconv.Quote(text)
	}
	return ""
}

// describe fills in what a change is about, given what applies before and after all changes.
func (c *Change) describe(before, after world) {
	c.Target, c.Own, c.Entity, c.On = c.key.String(), c.key.Own, c.key.Entity, c.key.Resource
	if c.key.Own {
		c.describeEntity()
		return
	}
	var old, set weir.ScopedLimits
	if c.before.Limits != nil {
		old = *c.before.Limits
		old.Limits = sorted(old.Limits)
	}
	if c.after != nil {
		set = *c.after.Limits
	}
	c.Fields = limitFields(old.Limits, set.Limits)
	if old.OnUnavailable != set.OnUnavailable {
		c.Fields = append(c.Fields, Field{Name: "on_unavailable", Old: string(old.OnUnavailable), New: string(set.OnUnavailable)})
	}
	if !old.NearLimit.Equal(set.NearLimit) {
		c.Fields = append(c.Fields, Field{Name: "near_limit", Old: thresholdsText(old.NearLimit), New: thresholdsText(set.NearLimit)})
	}
	switch {
	case len(old.Limits) > 0 && len(set.Limits) > 0:
		c.Moves = movesOf(old.Limits, set.Limits)
	case len(set.Limits) > 0:
		c.fallBack(before.below(c.key.Scope), set.Limits, true)
	case len(old.Limits) > 0:
		c.fallBack(after.below(c.key.Scope), old.Limits, false)
	}
}

// fallBack says what becomes of what applies where limits are new, or go: the others are what applied, or will.
func (c *Change) fallBack(others []layer, limits []weir.Limit, set bool) {
	for _, o := range others {
		m := movesOf(o.limits, limits)
		if !set {
			m = movesOf(limits, o.limits)
		}
		c.Moves = c.Moves.and(m)
	}
	c.From, c.Applies = from(others), appliesOf(others, limits, set)
}

func (c *Change) describeEntity() {
	none := &weir.Entity{}
	b, a := none, none
	if c.before.Entity != nil && !c.before.Entity.Created.IsZero() {
		b = c.before.Entity
	}
	if c.after != nil {
		a = c.after.Entity
	}
	c.Fields, c.Moves = entityDiff(b, a)
}
