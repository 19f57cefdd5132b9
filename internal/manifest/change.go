package manifest

import (
	"maps"
	"slices"
	"strconv"

	"github.com/weirlimits/weir"
)

// Action is the kind of a change to a record.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
	Adopt  Action = "adopt" // the record exists and no manifest manages it: this one takes it over and updates it
)

// Change is a change to one record.
type Change struct {
	Action Action  `json:"action"`
	Target string  `json:"target"` // for people: "resource gpt-4"
	Own    bool    `json:"own,omitempty"`
	Entity string  `json:"entity,omitempty"`
	On     string  `json:"resource,omitempty"`
	Fields []Field `json:"fields,omitempty"`
	Moves  Moves   `json:"moves,omitempty"`
	// Applies lists, if limits are added or removed, how the limits that apply change. From says where the limits
	// come from that apply without them. Both are empty if there are none.
	Applies []Field `json:"applies,omitempty"`
	From    string  `json:"from,omitempty"`
	// Outside reports that a managed record was changed by something other than its manifest.
	Outside bool     `json:"outside,omitempty"`
	Touches *Touches `json:"touches,omitempty"` // of a change to limits

	key    Key
	before weir.Declared
	after  *Record
	phase  int // when it is made
}

// Limits returns the record's new limits. It returns nil if the record is removed, is an entity itself, or was read
// from JSON.
func (c *Change) Limits() []weir.Limit {
	if c.after == nil || c.after.Limits == nil {
		return nil
	}
	return c.after.Limits.Limits
}

// entityDiff returns what changes about an entity. Whether that loosens or tightens depends on the parents' limits;
// charging another parent can only tighten.
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

// describe fills in the description of a change, given the limits that apply before and after all changes.
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

// fallBack describes the effect of adding or removing all limits of a scope. others are the limits that applied
// before, or will apply afterwards.
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
