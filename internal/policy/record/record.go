// Package record holds the records of the catalog: their JSON, keys and ids, and a limit's text and bounds.
package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
)

// The catalog's records, as JSON; see docs/format/catalog.md.

// Entity is an entity's own record.
type Entity struct {
	Name     string            `json:"name,omitempty"`
	Parent   string            `json:"parent,omitempty"`
	Plan     string            `json:"plan,omitempty"`
	Cascade  bool              `json:"cascade,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  time.Time         `json:"created"`
	Deleting bool              `json:"deleting,omitempty"` // no child may be added
	Moving   bool              `json:"moving,omitempty"`   // about to get another parent
	Managed  *Managed          `json:"managed,omitempty"`
}

// Limits are the limits of a [Scope], and the settings stored with them.
type Limits struct {
	Limits        []Limit  `json:"limits,omitempty"`
	OnUnavailable string   `json:"on_unavailable,omitempty"`
	NearLimit     []int    `json:"near_limit,omitzero"` // only in the system's record; [] is off
	Entities      string   `json:"entities,omitempty"`  // only in the system's record: "" or KnownEntities
	Deleting      bool     `json:"deleting,omitempty"`  // only in a plan's default: no entity may name it
	Managed       *Managed `json:"managed,omitempty"`
	// Group is the group of a resource, in the resource's record. Totals and Plans are set in the system's record once
	// an entity's total or a plan has had limits; otherwise none are looked up. With one of them, and with Bounded and
	// Phases, Limits is an object with the member "list", so that a weir that does not know them refuses to use the
	// record instead.
	Group  string `json:"group,omitempty"`
	Totals bool   `json:"totals,omitempty"`
	Plans  bool   `json:"plans,omitempty"`
	// Bounded are in order, and do not overlap. Phases is set in the system's record once some limits have had bounds.
	Bounded []Bounded `json:"bounded,omitempty"`
	Phases  bool      `json:"phases,omitempty"`
	// Marked is how many times in a row, up to now, Totals, Plans or Phases was set and nothing else changed. Whoever
	// has read an earlier version may still write.
	Marked uint64 `json:"marked,omitempty"`
}

// plainLimits are Limits without their methods.
type plainLimits Limits

// limitList is a list of limits in either form.
type limitList []Limit

// listed is the form of limits with a list.
type listed struct {
	List []Limit `json:"list,omitempty"`
}

// UnmarshalJSON reads both forms.
func (l *limitList) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '{' {
		return json.Unmarshal(data, (*[]Limit)(l))
	}
	var in listed
	err := json.Unmarshal(data, &in)
	*l = in.List
	return err
}

// MarshalJSON writes the form with a list if Group, Totals, Plans, Bounded or Phases is set.
func (l Limits) MarshalJSON() ([]byte, error) {
	if l.Group == "" && !l.Totals && !l.Plans && !l.Phases && len(l.Bounded) == 0 {
		return json.Marshal(plainLimits(l))
	}
	return json.Marshal(struct {
		Limits listed `json:"limits"`
		plainLimits
	}{listed{l.Limits}, plainLimits(l)})
}

// UnmarshalJSON reads both forms.
func (l *Limits) UnmarshalJSON(data []byte) error {
	var in struct {
		Limits limitList `json:"limits"`
		plainLimits
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*l = Limits(in.plainLimits)
	l.Limits = in.Limits
	return nil
}

// Empty reports whether the record has nothing but marks.
func (l *Limits) Empty() bool {
	return len(l.Limits) == 0 && l.OnUnavailable == "" && l.NearLimit == nil && l.Entities == "" && l.Group == "" &&
		len(l.Bounded) == 0
}

// KnownEntities is the value of [Limits.Entities] that allows only requests for entities that were created.
const KnownEntities = "known"

// Namespace is the record of a namespace by name.
type Namespace struct {
	ID      string     `json:"id"`
	Created time.Time  `json:"created"`
	Deleted *time.Time `json:"deleted,omitempty"`
	// MaxBuckets is how many live buckets a server lets the namespace have; 0 is the server's default.
	MaxBuckets int `json:"max_buckets,omitempty"`
}

// NamespaceID is the record of a namespace by opaque id.
type NamespaceID struct {
	Name string `json:"name"`
	// Purged is when the namespace was purged. The record then expires, and shows which namespace has a bucket that
	// another process writes with limits of before.
	Purged *time.Time `json:"purged,omitempty"`
}

// DefaultNamespace is the namespace that exists in every store. Its opaque id is its name.
const DefaultNamespace = "default"

// EntityKey returns the key of an entity's own record.
func EntityKey(namespace, id string) store.Key {
	return store.Key{Namespace: namespace, Kind: store.KindEntity, ID: id}
}

// SystemKey returns the key of the namespace's limits and settings.
func SystemKey(namespace string) store.Key {
	return store.Key{Namespace: namespace, Kind: store.KindSystem}
}

// Scope is where limits are set: for an entity or a plan, of which at most one is set, on a resource or, without one,
// on all others; with only a resource, for the resource; with nothing, for the namespace.
type Scope struct{ Entity, Resource, Plan string }

// Key returns the key of the scope's record.
func (sc Scope) Key(namespace string) store.Key {
	k := store.Key{Namespace: namespace, Kind: store.KindSystem}
	switch {
	case sc.Entity != "":
		k.Kind, k.ID, k.Sub = store.KindEntityLimits, sc.Entity, cmp.Or(sc.Resource, DefaultResource)
	case sc.Plan != "":
		k.Kind, k.ID, k.Sub = store.KindPlanLimits, sc.Plan, cmp.Or(sc.Resource, DefaultResource)
	case sc.Resource != "":
		k.Kind, k.ID = store.KindResourceLimits, sc.Resource
	}
	return k
}

// ScopeOf returns the scope of a [Scope.Key].
func ScopeOf(k store.Key) (sc Scope) {
	if sc.Resource = k.Sub; k.Sub == DefaultResource {
		sc.Resource = ""
	}
	switch k.Kind {
	case store.KindEntityLimits:
		sc.Entity = k.ID
	case store.KindPlanLimits:
		sc.Plan = k.ID
	case store.KindResourceLimits:
		sc.Resource = k.ID
	default: // the system's
	}
	return sc
}

// PlanEntityKey returns the key of the record by which a plan's entities are found.
func PlanEntityKey(namespace, plan, entity string) store.Key {
	return store.Key{Namespace: namespace, Kind: store.KindPlanEntity, ID: plan, Sub: entity}
}

// mark adds to the marks of the system's record what a write requires: limits on a total, those of a plan, and those
// that begin or end.
func (l *Limits) mark(w store.Write) {
	k := &w.Record.Key
	if w.Check || w.Delete {
		return
	}
	switch k.Kind {
	case store.KindEntityLimits, store.KindPlanLimits, store.KindResourceLimits, store.KindSystem:
	default:
		return
	}
	l.Totals = l.Totals || k.Sub == store.Total || k.Kind == store.KindResourceLimits && k.ID == store.Total
	l.Plans = l.Plans || k.Kind == store.KindPlanLimits
	var has Limits
	l.Phases = l.Phases || Decode(w.Record, &has) == nil && len(has.Bounded) > 0
}

// marked reports whether the system's record has a mark.
func (l *Limits) marked() bool { return l.Totals || l.Plans || l.Phases }

// ConcernsMarks reports whether writes must mark the system's record, or change it.
func ConcernsMarks(writes []store.Write) bool {
	return slices.ContainsFunc(writes, func(w store.Write) bool {
		var set Limits
		set.mark(w)
		return set.marked() || w.Record.Key.Kind == store.KindSystem && !w.Check
	})
}

// KeepMarks returns writes that set [Limits.Totals], [Limits.Plans] and [Limits.Phases] if they must, and otherwise
// leave them as they are in the system's record now.
func KeepMarks(writes []store.Write, system store.Record) ([]store.Write, error) {
	var was, lr Limits
	if system.Version != 0 {
		if err := Decode(system, &was); err != nil {
			return nil, err
		}
	}
	set := was
	for _, w := range writes {
		set.mark(w)
	}
	at := slices.IndexFunc(writes, func(w store.Write) bool { return w.Record.Key == system.Key && !w.Check })
	changed := set.Totals != was.Totals || set.Plans != was.Plans || set.Phases != was.Phases
	switch {
	case !set.marked(), at < 0 && !changed:
		return writes, nil
	case at < 0:
		at, lr = len(writes), was
		lr.Marked++
		writes = append(slices.Clip(writes), Put(system.Key, system.Version, was))
	default:
		writes = slices.Clone(writes)
		w := &writes[at].Record
		if !writes[at].Delete {
			if err := Decode(*w, &lr); err != nil {
				return nil, err
			}
		}
		if lr.Marked = 0; w.Version+was.Marked >= system.Version || w.Version == 0 && was.Empty() {
			w.Version = max(w.Version, system.Version)
		}
	}
	lr.Totals, lr.Plans, lr.Phases = set.Totals, set.Plans, set.Phases
	writes[at] = Put(system.Key, writes[at].Record.Version, lr)
	return writes, nil
}

// NamespaceKey returns the key of a namespace by name.
func NamespaceKey(name string) store.Key {
	return store.Key{Namespace: store.Registry, Kind: store.KindNamespace, ID: name}
}

// NamespaceIDKey returns the key of a namespace by opaque id.
func NamespaceIDKey(id string) store.Key {
	return store.Key{Namespace: store.Registry, Kind: store.KindNamespaceID, ID: id}
}

// Managed marks a record as declared by a manifest.
type Managed struct {
	Manifest string `json:"manifest"` // its name
	Hash     string `json:"hash"`     // of the declared value
}

// Name returns the manifest's name, or "".
func (m *Managed) Name() string {
	if m == nil {
		return ""
	}
	return m.Manifest
}

// Put returns a write of value to a record that must have this version now; 0 means that it must not exist.
func Put(key store.Key, version uint64, value any) store.Write {
	return store.Write{Record: store.Record{Key: key, Version: version, Value: Encode(value)}}
}

// Remove returns the deletion of a record, provided it is as it was read.
func Remove(r store.Record) store.Write {
	return store.Write{Record: store.Record{Key: r.Key, Version: r.Version}, Delete: true}
}

// Encode returns a record's JSON, in which < and > stay readable.
func Encode(value any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		panic(err) // only weir's own types are encoded, and they always succeed
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// Event is the audit event of a change, before it is committed.
type Event struct {
	Action, Subject string
	Before, After   any // nil if there is none
}

// ErrUnreadable marks an answer of the store that cannot be used, as opposed to no answer.
var ErrUnreadable = errors.New("unreadable")

// Decode reads a record's JSON. Its error is a [*store.Error] that wraps [ErrUnreadable].
func Decode(r store.Record, into any) error {
	if err := json.Unmarshal(r.Value, into); err != nil {
		return Unreadable(r, err)
	}
	return nil
}

// Unreadable returns the error of a record that cannot be used.
func Unreadable(r store.Record, err error) error {
	return &store.Error{
		Op: "read", Key: r.Key.String(), Err: fmt.Errorf("%w: %w", ErrUnreadable, err),
		Hint: "the record was written by a later version of weir, or not by weir",
	}
}
