package manifest

import (
	"cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
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
	// Applies lists, if limits are added or removed, how the limits that apply change. From is where the limits
	// come from that apply without them. Both are empty if there are none.
	Applies []Field `json:"applies,omitempty"`
	From    string  `json:"from,omitempty"`
	// Outside reports that a managed record was changed by something other than its manifest.
	Outside bool     `json:"outside,omitempty"`
	Touches *Touches `json:"touches,omitempty"` // of a change to limits

	key    Key
	before admin.Declared
	after  *admin.Declared
	phase  int // when it is made
}

// Limits returns the record's new limits. It returns nil if the record is removed, is an entity itself, or was read
// from JSON.
func (c *Change) Limits() []weir.Limit {
	if c.after == nil {
		return nil
	}
	return limitsOf(c.after)
}

// describe fills in the description of a change, given the limits that apply before and after all changes.
func (c *Change) describe(before, after scopes) {
	c.Target, c.Own, c.Entity, c.On = c.key.String(), c.key.Own, c.key.Entity, c.key.Resource
	nothing := &admin.Declared{Entity: &admin.Entity{}, Limits: &admin.ScopedLimits{}}
	old, set := nothing, cmp.Or(c.after, nothing)
	if exists(&c.before) {
		old = &c.before
	}
	c.Fields = c.key.kind().fields(old, set)
	if c.key.Own {
		for _, f := range c.Fields {
			c.Moves = c.Moves.and(f.Moves)
		}
		return
	}
	switch was, is := limitsOf(old), limitsOf(set); {
	case len(was) > 0 && len(is) > 0:
		c.Moves = movesOf(was, is)
	case len(is) > 0:
		c.fallBack(before.below(c.key.Scope), is, true)
	case len(was) > 0:
		c.fallBack(after.below(c.key.Scope), was, false)
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

// Drift is why a live record is not as declared.
type Drift string

// The reasons for drift.
const (
	Edited     Drift = "edited"     // changed by hand
	Removed    Drift = "removed"    // removed by hand
	Unapplied  Drift = "unapplied"  // the manifest changed since it was applied, or was never applied
	Unmanaged  Drift = "unmanaged"  // live, but no manifest manages it
	Undeclared Drift = "undeclared" // managed by the manifest, but no longer declared
)

// Drift returns why the record of a change is not as declared.
func (p *Plan) Drift(c *Change) Drift {
	switch {
	case c.Action == Adopt:
		return Unmanaged
	case c.Action == Delete:
		return Undeclared
	case c.Outside:
		return Edited
	case c.Action == Create && p.Last.Hash == p.Hash:
		return Removed
	}
	return Unapplied
}

// DriftReport lists how the live records differ from a manifest.
type DriftReport struct {
	Namespace string         `json:"namespace"`
	Manifest  string         `json:"manifest"`
	Drift     []DriftedState `json:"drift"`
	LeftAlone int            `json:"left_alone"` // live records that no manifest declares
}

// DriftedState is a record that is not as declared.
type DriftedState struct {
	Target string  `json:"target"`
	Why    Drift   `json:"why"`
	Fields []Field `json:"fields,omitempty"` // old is live, new is declared
}

// DriftOf returns the drift reports of plans.
func DriftOf(plans []*Plan) []DriftReport {
	all := []DriftReport{}
	for _, p := range plans {
		d := DriftReport{p.Namespace, p.Manifest, []DriftedState{}, p.LeftAlone}
		for i := range p.Changes {
			c := &p.Changes[i]
			d.Drift = append(d.Drift, DriftedState{c.Target, p.Drift(c), c.Fields})
		}
		all = append(all, d)
	}
	return all
}
