package manifest

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/live"
	"github.com/weirlimits/weir/internal/manifest/reach"
)

// Action is the kind of a change to a record.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
	Adopt  Action = "adopt" // the record exists and no manifest manages it: this one takes it over and updates it
	Move   Action = "move"  // another manifest manages the record: this one takes it over and updates it
	// The record is no longer declared, and stays; no manifest manages it from then on.
	Release Action = "release"
)

// Change is a change to one record.
type Change struct {
	Action Action `json:"action"`
	Target string `json:"target"` // for people: "resource gpt-4"
	Own    bool   `json:"own,omitempty"`
	admin.Scope
	// Manager is the manifest that manages a record that moves, until then.
	Manager string        `json:"manager,omitempty"`
	Fields  []delta.Field `json:"fields,omitempty"`
	Moves   delta.Moves   `json:"moves,omitempty"`
	// Applies lists, if limits are added or removed, how the limits that apply change. From is where the limits
	// come from that apply without them. Both are empty if there are none.
	Applies []delta.Field `json:"applies,omitempty"`
	From    string        `json:"from,omitempty"`
	// Was and Set are the limits of the record before and after the change, by name.
	Was []weir.Limit `json:"limits_before,omitempty"`
	Set []weir.Limit `json:"limits_after,omitempty"`
	// Refused is why applying the change is refused: it would hide a balance that is not 0.
	Refused string         `json:"refused,omitempty"`
	Touches *reach.Touches `json:"touches,omitempty"` // of a change to limits

	standing
	work
}

// standing is how the live record came to differ.
type standing struct {
	// Outside reports that a managed record was changed by something other than its manifest.
	Outside bool `json:"outside,omitempty"`
	// Staged reports that the unfinished rollout applies the change to a share of the entities.
	Staged bool `json:"staged,omitempty"`
}

// work is what applying a change does.
type work struct {
	key    Key
	before admin.Declared
	after  *admin.Declared
	phase  int       // when it is made
	begins time.Time // when the limits differ from those before for the first time
}

// describe fills in the description of a change, given the limits that apply before and after all changes.
func (c *Change) describe(before, after live.Scopes) {
	c.Target, c.Own, c.Scope = c.key.String(), c.key.Own, c.key.Scope
	nothing := &admin.Declared{Entity: &admin.Entity{}, Limits: &admin.ScopedLimits{}}
	old, set := nothing, cmp.Or(c.after, nothing)
	if exists(&c.before) {
		still := live.Lasting(c.before, before.At)
		old = &still
	}
	c.Fields, c.Was, c.Set = c.key.kind().fields(old, set), limitsOf(old), limitsOf(set)
	if c.key.Own {
		for _, f := range c.Fields {
			c.Moves = c.Moves.And(f.Moves)
		}
		return
	}
	changed := false
	c.begins = before.At
	for _, at := range live.Course(before.At, old, set) {
		switch was, is := live.LimitsAt(old, at), live.LimitsAt(set, at); {
		case slices.Equal(was, is):
			continue
		case len(was) > 0 && len(is) > 0:
			c.Moves = c.Moves.And(delta.OfLimits(was, is))
		case len(is) > 0:
			c.fallBack(before.As(at).Below(c.key.Scope), is, true)
		default:
			c.fallBack(after.As(at).Below(c.key.Scope), was, false)
		}
		if !changed {
			changed, c.begins = true, at
		}
	}
	for _, f := range c.Fields {
		if f.Limit == "" {
			c.Moves = c.Moves.And(f.Moves)
		}
	}
}

// fallBack describes the effect of adding or removing all limits of a scope. others are the limits that applied
// before, or will apply afterwards.
func (c *Change) fallBack(others []live.Layer, limits []weir.Limit, set bool) {
	all := make([][]weir.Limit, len(others))
	for i, o := range others {
		all[i] = o.Limits
		m := delta.On(c.key.Resource, o.Limits, limits)
		if !set {
			m = m.Inverse()
		}
		c.Moves = c.Moves.And(m)
	}
	if c.From == "" && len(c.Applies) == 0 { // they begin with this
		c.From, c.Applies = from(others), delta.Applying(all, limits, set)
	}
}

// from describes where limits come from.
func from(others []live.Layer) string {
	if len(others) == 1 {
		if len(others[0].Limits) == 0 {
			return ""
		}
		if sc := others[0].Scope; sc != (admin.Scope{}) {
			return Key{Scope: sc}.String()
		}
		return "the system defaults"
	}
	text := "each resource that has limits"
	if len(others[0].Limits) > 0 {
		return text + ", else the system defaults"
	}
	return text + "; requests on other resources are an error"
}
