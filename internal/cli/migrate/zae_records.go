package migrate

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
)

// zae makes a manifest of the items of a namespace.
type zae struct {
	imported

	cascades map[string]bool // policies of entities on all resources
}

func newZae(namespace string) *zae {
	return &zae{
		imported: imported{Manifest: &manifest.Manifest{
			Namespace: namespace, Name: manifest.DefaultName, Records: make(map[manifest.Key]*manifest.Record),
		}},
		cascades: make(map[string]bool),
	}
}

// add adds what an item declares.
func (z *zae) add(it item) {
	_, key, _ := strings.Cut(it.text("PK"), "/")
	on, _ := strings.CutPrefix(it.text("SK"), zaeConfig)
	on = strings.TrimPrefix(on, "#")
	entity, ofEntity := strings.CutPrefix(key, zaeEntity)
	resource, ofResource := strings.CutPrefix(key, zaeResource)
	switch {
	case ofEntity && it.text("SK") == zaeMeta:
		z.entity(entity, it)
	case ofEntity && on == weir.DefaultResource:
		z.limits(admin.Scope{Entity: entity}, it)
	case ofEntity:
		z.limits(admin.Scope{Entity: entity, Resource: on}, it)
	case ofResource:
		z.limits(admin.Scope{Resource: resource}, it)
	case key == zaeSystem:
		z.limits(admin.Scope{}, it)
	default:
		z.differ("left out: the unknown record %s %s", it.text("PK"), it.text("SK"))
	}
}

func (z *zae) entity(id string, it item) {
	e := &admin.Entity{ID: id, Parent: it.text("parent_id")}
	e.Cascade, _ = it.truth("cascade")
	if name := it.text("name"); name != id {
		e.Name = name
	}
	if m, ok := it["metadata"].(*types.AttributeValueMemberM); ok && len(m.Value) > 0 {
		e.Metadata = make(map[string]string)
		for _, name := range slices.Sorted(maps.Keys(m.Value)) {
			if v, ok := m.Value[name].(*types.AttributeValueMemberS); ok {
				e.Metadata[name] = v.Value
			} else {
				z.differ("entity %s: metadata %s is left out: it is no text", id, name)
			}
		}
	}
	if err := e.Validate(); err != nil {
		z.differ("entity %s is left out: %v", id, err)
		return
	}
	z.Records[manifest.Key{Scope: admin.Scope{Entity: id}, Own: true}] = &manifest.Record{
		Declared: admin.Declared{Entity: e},
	}
}

// zaeKnown are the attributes of limits that the import reads, or that only lead to the item.
var zaeKnown = []string{
	"PK", "SK", "entity_id", "resource", "config_version", "sched_tz", "on_unavailable", "disabled", "cascade",
}

// limits adds the limits of a scope.
func (z *zae) limits(scope admin.Scope, it item) {
	key := manifest.Key{Scope: scope}
	if err := scope.Validate(); err != nil {
		z.differ("%s: left out: %v", key, err)
		return
	}
	l := &admin.ScopedLimits{Scope: scope}
	for _, name := range slices.Sorted(maps.Keys(it)) {
		prefix, rest, _ := strings.Cut(name, "_")
		ofLimit := prefix == "l" || prefix == "w"
		index := strings.HasPrefix(name, "GSI") || strings.HasPrefix(name, "LSI")
		switch limit, first := strings.CutSuffix(rest, "_cp"); {
		case ofLimit && first:
			if made, ok := z.limit(key, it, prefix, limit); ok {
				l.Limits = append(l.Limits, made)
			}
		case ofLimit || index || slices.Contains(zaeKnown, name):
		default:
			z.differ("%s: %s is left out", key, name)
		}
	}
	z.flags(l, key, it)
	if len(l.Limits) > 0 || l.OnUnavailable != "" {
		z.Records[key] = &manifest.Record{Declared: admin.Declared{Limits: l}}
	}
}

// flags reads what a record has beside limits.
func (z *zae) flags(l *admin.ScopedLimits, key manifest.Key, it item) {
	switch it.text("on_unavailable") {
	case "allow":
		l.OnUnavailable = weir.OnUnavailableAllow
	case "block":
		l.OnUnavailable = weir.OnUnavailableDeny
	}
	if off, _ := it.truth("disabled"); off {
		z.differ("%s: disabled there, which refuses all requests: here only the limits apply", key)
	} else if it.text("disabled") != "" {
		z.differ("%s: bypassed there, which admits all requests: here the limits apply", key)
	}
	switch cascade, set := it.truth("cascade"); {
	case set && key.Entity != "" && key.Resource == "":
		z.cascades[key.Entity] = cascade
	case set:
		z.differ("%s: cascade: %t is left out: here an entity charges its parent on all resources, or on none",
			key, cascade)
	}
}

// limit makes a limit of the attributes that begin with a prefix and its name.
func (z *zae) limit(key manifest.Key, it item, prefix, name string) (l weir.Limit, ok bool) {
	attribute := func(field string) string { return prefix + "_" + name + "_" + field }
	number := func(field string) (n int64) {
		if v, ok := it[attribute(field)].(*types.AttributeValueMemberN); ok {
			n, _ = strconv.ParseInt(v.Value, 10, 64) // 0, which Validate refuses
		}
		return n
	}
	capacity := number("cp")
	l = weir.Limit{
		Name: name, Amount: number("ra"), Period: time.Duration(number("rp")) * time.Second, Burst: capacity,
	}
	var err error
	zone := cmp.Or(it.text("sched_tz"), "UTC")
	if reset := it.text(attribute("rsched")); reset != "" {
		l.Amount, l.Period = capacity, 0
		l.Window, err = zaeWindow(reset, zone)
	} else if after := number("rsa"); after > 0 {
		l.Amount, l.Period = capacity, time.Duration(after)*time.Second
		z.differ("%s: limit %s: %d in the %s from the first use on: here they are issued evenly over that time",
			key, name, capacity, l.Period)
	}
	if soft, _ := it.truth(attribute("soft")); soft {
		l.Enforce = weir.EnforceShadow
	}
	if it.text(attribute("sched")) != "" {
		z.differ("%s: limit %s: its schedule is left out: %s applies at all times", key, name, l)
	}
	if err = cmp.Or(err, l.Validate()); err != nil {
		if bad, ok := errors.AsType[*weir.ConfigError](err); ok {
			err = errors.New(bad.Reason)
		}
		z.differ("%s: limit %s is left out: %v", key, name, err)
		return l, false
	}
	return l, true
}

// finish adds what depends on several items.
func (z *zae) finish() {
	for id, cascade := range z.cascades {
		if r := z.Records[manifest.Key{Scope: admin.Scope{Entity: id}, Own: true}]; r != nil {
			r.Entity.Cascade = cascade
		}
	}
	parents := make(map[string]bool) // that children charge
	for _, r := range z.Records {
		if e := r.Entity; e != nil && e.Parent != "" {
			parents[e.Parent] = parents[e.Parent] || e.Cascade
		}
	}
	for _, id := range slices.Sorted(maps.Keys(parents)) {
		key := manifest.Key{Scope: admin.Scope{Entity: id}, Own: true}
		switch r := z.Records[key]; {
		case r == nil:
			z.differ("entity %s: added, because it is a parent", id)
			z.Records[key] = &manifest.Record{Declared: admin.Declared{Entity: &admin.Entity{ID: id}}}
		case r.Entity.Parent != "" && r.Entity.Cascade && parents[id]:
			z.differ("entity %s: its children charge %s, too, because it cascades itself", id, r.Entity.Parent)
		}
	}
}
