package manifest

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// kind is a kind of record that a manifest declares.
type kind struct {
	section string // the key of the document below which it is declared
	rank    int    // its place in a manifest; the keys decide between records of the same rank
	name    func(k Key) string
	members []member
	// empty is the mistake of declaring no member, with its hint. Without it, that is allowed.
	empty, hint string
}

// member is one member of a record: how it is read, written and compared. A member at its default is not written.
type member struct {
	key    string
	decode func(d *decoder, n *yaml.Node, path string, r *admin.Declared) bool
	encode func(w *writer, depth int, r *admin.Declared)
	diff   func(old, set *admin.Declared) []Field
	block  bool // written below its key, after all values
}

const limitsHint = "add limits: {NAME: {capacity: N}}"

var kinds = struct{ system, resource, entity, entityLimits kind }{
	system: kind{
		section: "system", name: func(Key) string { return "system" },
		members: []member{limitsMember, onUnavailableMember, nearLimitMember},
		empty:   "declares nothing", hint: "allowed: limits, on_unavailable, near_limit",
	},
	resource: kind{
		section: "resources", rank: 1, name: func(k Key) string { return "resource " + strictyaml.Quote(k.Resource) },
		members: []member{limitsMember, onUnavailableMember},
		empty:   "limits is missing", hint: limitsHint,
	},
	entity: kind{
		section: "entities", rank: 2, name: func(k Key) string { return "entity " + strictyaml.Quote(k.Entity) },
		members: []member{nameMember, parentMember, cascadeMember, metadataMember},
	},
	entityLimits: kind{
		section: "entities", rank: 2, name: entityLimitsName,
		members: []member{limitsMember, onUnavailableMember},
		empty:   "limits is missing", hint: limitsHint,
	},
}

func entityLimitsName(k Key) string {
	if k.Resource == "" {
		return "entity " + strictyaml.Quote(k.Entity) + " on other resources"
	}
	return "entity " + strictyaml.Quote(k.Entity) + " on " + strictyaml.Quote(k.Resource)
}

// fields returns how a record changes from one value to another.
func (k *kind) fields(old, set *admin.Declared) (fs []Field) {
	for _, m := range k.members {
		fs = append(fs, m.diff(old, set)...)
	}
	return fs
}

// kind returns the kind of record that the key names.
func (k Key) kind() *kind {
	switch {
	case k.Own:
		return &kinds.entity
	case k.Entity != "":
		return &kinds.entityLimits
	case k.Resource != "":
		return &kinds.resource
	}
	return &kinds.system
}

// The members of limits.
var (
	limitsMember = member{
		key: "limits", block: true,
		decode: func(d *decoder, n *yaml.Node, path string, r *admin.Declared) (ok bool) {
			r.Limits.Limits, ok = d.limits(n, path)
			return ok
		},
		encode: func(w *writer, depth int, r *admin.Declared) {
			if len(r.Limits.Limits) > 0 {
				w.key(depth, "limits")
			}
			for _, l := range limitsOf(r) {
				w.line(depth+1, l.Name, shortest(l))
			}
		},
		diff: func(old, set *admin.Declared) []Field { return limitFields(limitsOf(old), limitsOf(set)) },
	}
	onUnavailableMember = textMember("on_unavailable",
		func(r *admin.Declared) *weir.OnUnavailable { return &r.Limits.OnUnavailable },
		func(d *decoder, n *yaml.Node, path, text string) bool {
			allowed := []string{"deny", "allow", "local"}
			if slices.Contains(allowed, text) {
				return true
			}
			d.Bad(d.Follow(n), path, strictyaml.Allowed(text, allowed), "%s is unknown", strictyaml.Quote(text))
			return false
		}, nil)
	nearLimitMember = member{
		key: "near_limit",
		decode: func(d *decoder, n *yaml.Node, path string, r *admin.Declared) (ok bool) {
			r.Limits.NearLimit, ok = d.nearLimit(n, path)
			return ok
		},
		encode: func(w *writer, depth int, r *admin.Declared) {
			if t := r.Limits.NearLimit; len(t) > 0 {
				w.line(depth, "near_limit", "["+strings.ReplaceAll(t.String(), ",", ", ")+"]")
			} else if t != nil {
				w.line(depth, "near_limit", "[]")
			}
		},
		diff: func(old, set *admin.Declared) []Field {
			text := func(t admin.Thresholds) string {
				if t == nil {
					return ""
				}
				return t.String()
			}
			was, is := old.Limits.NearLimit, set.Limits.NearLimit
			if was.Equal(is) {
				return nil
			}
			return []Field{{Name: "near_limit", Old: text(was), New: text(is)}}
		},
	}
)

// The members of an entity.
var (
	nameMember   = textMember("name", func(r *admin.Declared) *string { return &r.Entity.Name }, nil, nil)
	parentMember = textMember("parent", func(r *admin.Declared) *string { return &r.Entity.Parent },
		(*decoder).id, parentMoves)

	cascadeMember = member{
		key: "cascade",
		decode: func(d *decoder, n *yaml.Node, path string, r *admin.Declared) (ok bool) {
			r.Entity.Cascade, ok = d.Truth(n, path)
			return ok
		},
		encode: func(w *writer, depth int, r *admin.Declared) {
			if r.Entity.Cascade {
				w.line(depth, "cascade", "true")
			}
		},
		diff: func(old, set *admin.Declared) []Field {
			return textDiff("cascade", strconv.FormatBool(old.Entity.Cascade), strconv.FormatBool(set.Entity.Cascade),
				parentMoves(old, set))
		},
	}
	metadataMember = member{
		key: "metadata", block: true,
		decode: func(d *decoder, n *yaml.Node, path string, r *admin.Declared) (ok bool) {
			r.Entity.Metadata, ok = d.metadata(n, path)
			return ok
		},
		encode: func(w *writer, depth int, r *admin.Declared) {
			if len(r.Entity.Metadata) > 0 {
				w.key(depth, "metadata")
			}
			for _, k := range slices.Sorted(maps.Keys(r.Entity.Metadata)) {
				w.text(depth+1, k, strictyaml.Escape(r.Entity.Metadata[k]))
			}
		},
		diff: func(old, set *admin.Declared) (fs []Field) {
			keys := make(map[string]string)
			maps.Copy(keys, old.Entity.Metadata)
			maps.Copy(keys, set.Entity.Metadata)
			text := func(r *admin.Declared, k string) string {
				if v, ok := r.Entity.Metadata[k]; ok {
					return strconv.Quote(v)
				}
				return ""
			}
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				fs = append(fs, textDiff("metadata."+strictyaml.Quote(k), text(old, k), text(set, k), Same)...)
			}
			return fs
		},
	}
)

// textMember returns a member that is text, "" by default.
func textMember[S ~string](key string, of func(*admin.Declared) *S,
	check func(d *decoder, n *yaml.Node, path, text string) bool, moves func(old, set *admin.Declared) Moves,
) member {
	return member{
		key: key,
		decode: func(d *decoder, n *yaml.Node, path string, r *admin.Declared) bool {
			text, ok := d.Text(n, path)
			*of(r) = S(text)
			return ok && (check == nil || check(d, n, path, text))
		},
		encode: func(w *writer, depth int, r *admin.Declared) {
			if text := string(*of(r)); text != "" {
				w.text(depth, key, strictyaml.Escape(text))
			}
		},
		diff: func(old, set *admin.Declared) []Field {
			m := Same
			if moves != nil {
				m = moves(old, set)
			}
			return textDiff(key, string(*of(old)), string(*of(set)), m)
		},
	}
}

func textDiff(name, old, text string, m Moves) []Field {
	if old == text {
		return nil
	}
	return []Field{{Name: name, Old: old, New: text, Moves: m}}
}

// parentMoves returns the direction of charging another parent. Whether that loosens or tightens depends on the
// parents' limits; charging one more can only tighten.
func parentMoves(old, set *admin.Declared) Moves {
	charged := func(e *admin.Entity) bool { return e.Cascade && e.Parent != "" }
	before, after := charged(old.Entity), charged(set.Entity)
	switch {
	case after && before && old.Entity.Parent != set.Entity.Parent:
		return Both
	case after && !before:
		return Tightens
	case before && !after:
		return Loosens
	}
	return Same
}

// nearLimit reads percentages; an empty list means none. The schema cannot express that they must ascend.
func (d *decoder) nearLimit(n *yaml.Node, path string) (admin.Thresholds, bool) {
	if n = d.Follow(n); n.Kind != yaml.SequenceNode {
		d.Not(n, path, "write percentages, such as [80, 95], or [] for none", "a list")
		return nil, false
	}
	t, good := admin.Thresholds{}, true
	all := d.List(n, path, func(at string, v *yaml.Node) {
		p, ok := d.Count(v, at)
		if p > 100 {
			d.Bad(d.Follow(v), at, "", "%d is not a percentage from 1 to 100", p)
			ok = false
		}
		t, good = append(t, int(p)), good && ok
	})
	var bad *weir.ConfigError
	if err := t.Validate(); good && errors.As(err, &bad) {
		d.Bad(n, path, "", "%s", bad.Reason)
		return nil, false
	}
	return t, all && good
}

func (d *decoder) metadata(n *yaml.Node, path string) (map[string]string, bool) {
	var m map[string]string
	good := true
	isMap := d.Mapping(n, path, func(key string, k, v *yaml.Node) {
		if key == "" {
			d.Bad(k, path+"."+strictyaml.Quote(key), "", "has an empty key")
			good = false
			return
		}
		if m == nil {
			m = make(map[string]string)
		}
		var ok bool
		m[key], ok = d.Text(v, path+"."+strictyaml.Quote(key))
		good = good && ok
	})
	return m, isMap && good
}
