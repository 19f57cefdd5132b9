package manifest

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/store"
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
	encode func(w *strictyaml.Writer, depth int, r *admin.Declared)
	diff   func(old, set *admin.Declared) []delta.Field
	block  bool // written below its key, after all values
}

const limitsHint = "write limits: {rpm: 60/min}"

var kinds = struct{ system, plan, total, group, resource, entity, entityLimits kind }{
	system: kind{
		section: "system", name: func(Key) string { return "system" },
		members: []member{limitsMember, boundedMember, onUnavailableMember, entityRuleMember, nearLimitMember},
		empty:   "declares nothing", hint: "allowed: limits, bounded, on_unavailable, entities, near_limit",
	},
	plan: kind{
		section: "plans", rank: 1, name: planName,
		members: []member{limitsMember, boundedMember, onUnavailableMember},
		empty:   "limits is missing", hint: limitsHint,
	},
	total: kind{
		section: "total", rank: 2, name: func(k Key) string { return onText(k.Resource) },
		members: []member{limitsMember, boundedMember, onUnavailableMember},
		empty:   "limits is missing", hint: limitsHint,
	},
	group: kind{
		section: "groups", rank: 3, name: func(k Key) string { return onText(k.Resource) },
		members: []member{limitsMember, boundedMember, onUnavailableMember},
		empty:   "limits is missing", hint: limitsHint,
	},
	resource: kind{
		section: "resources", rank: 4, name: func(k Key) string { return "resource " + strictyaml.Quote(k.Resource) },
		members: []member{groupMember, limitsMember, boundedMember, onUnavailableMember},
		empty:   "limits is missing", hint: limitsHint,
	},
	entity: kind{
		section: "entities", rank: 5, name: func(k Key) string { return "entity " + strictyaml.Quote(k.Entity) },
		members: []member{nameMember, parentMember, cascadeMember, planMember, metadataMember},
	},
	entityLimits: kind{
		section: "entities", rank: 5, name: entityLimitsName,
		members: []member{limitsMember, boundedMember, onUnavailableMember},
		empty:   "limits is missing", hint: limitsHint,
	},
}

func planName(k Key) string {
	if k.Resource == "" {
		return "plan " + strictyaml.Quote(k.Plan)
	}
	return "plan " + strictyaml.Quote(k.Plan) + " on " + onText(k.Resource)
}

func entityLimitsName(k Key) string {
	if k.Resource == "" {
		return "entity " + strictyaml.Quote(k.Entity) + " on other resources"
	}
	return "entity " + strictyaml.Quote(k.Entity) + " on " + onText(k.Resource)
}

// onText names a resource, a group or the total.
func onText(resource string) string {
	switch key, name := within(resource); key {
	case "total":
		return "the total"
	case "groups":
		return "group " + strictyaml.Quote(name)
	default:
		return strictyaml.Quote(name)
	}
}

// within returns the mapping in which limits on a resource are declared, and their key there, which the total does not
// have.
func within(resource string) (key, name string) {
	if resource == weir.TotalResource {
		return "total", ""
	}
	if group, ok := strings.CutPrefix(resource, weir.GroupResource("")); ok {
		return "groups", group
	}
	return "resources", cmp.Or(resource, weir.DefaultResource)
}

// fields returns how a record changes from one value to another.
func (k *kind) fields(old, set *admin.Declared) (fs []delta.Field) {
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
	case k.Plan != "":
		return &kinds.plan
	case k.Resource == weir.TotalResource:
		return &kinds.total
	case store.Aggregate(k.Resource):
		return &kinds.group
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
			if r.Limits.Limits, ok = d.Limits(n, path); !ok {
				r.Limits.Limits = []weir.Limit{weir.PerMinute("?", 1)} // there is something to scale
			}
			return ok
		},
		encode: func(w *strictyaml.Writer, depth int, r *admin.Declared) {
			if len(r.Limits.Limits) > 0 {
				w.Key(depth, "limits")
			}
			for _, l := range limitsOf(r) {
				w.Line(depth+1, l.Name, strictyaml.FormatLimit(l))
			}
		},
		diff: func(old, set *admin.Declared) []delta.Field { return delta.Limits(limitsOf(old), limitsOf(set)) },
	}
	onUnavailableMember = textMember("on_unavailable",
		func(r *admin.Declared) *weir.OnUnavailable { return &r.Limits.OnUnavailable },
		oneOf("deny", "allow", "local"), nil)
	groupMember = textMember("group", func(r *admin.Declared) *string { return &r.Limits.Group }, (*decoder).Group,
		func(old, set *admin.Declared) delta.Moves {
			switch {
			case old.Limits.Group == "":
				return delta.Tightens
			case set.Limits.Group == "":
				return delta.Loosens
			}
			return delta.Both // as the limits of both are
		})
	entityRuleMember = textMember("entities", func(r *admin.Declared) *admin.EntityRule { return &r.Limits.Entities },
		oneOf(string(admin.KnownEntities), anyEntity), func(_, set *admin.Declared) delta.Moves {
			if set.Limits.Entities == admin.KnownEntities {
				return delta.Tightens
			}
			return delta.Loosens
		}).normal(func(r *admin.Declared) {
		if r.Limits.Entities == anyEntity {
			r.Limits.Entities = admin.AnyEntity
		}
	})
	nearLimitMember = member{
		key: "near_limit",
		decode: func(d *decoder, n *yaml.Node, path string, r *admin.Declared) (ok bool) {
			r.Limits.NearLimit, ok = d.nearLimit(n, path)
			return ok
		},
		encode: func(w *strictyaml.Writer, depth int, r *admin.Declared) {
			if t := r.Limits.NearLimit; len(t) > 0 {
				w.Line(depth, "near_limit", "["+strings.ReplaceAll(t.String(), ",", ", ")+"]")
			} else if t != nil {
				w.Line(depth, "near_limit", "[]")
			}
		},
		diff: func(old, set *admin.Declared) []delta.Field {
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
			return []delta.Field{{Name: "near_limit", Old: text(was), New: text(is)}}
		},
	}
)

// The members of an entity.
var (
	nameMember   = textMember("name", func(r *admin.Declared) *string { return &r.Entity.Name }, nil, nil)
	parentMember = textMember("parent", func(r *admin.Declared) *string { return &r.Entity.Parent },
		(*decoder).ID, delta.OfParents)
	planMember = textMember("plan", func(r *admin.Declared) *string { return &r.Entity.Plan }, (*decoder).ID,
		func(old, set *admin.Declared) delta.Moves {
			if old.Entity.Plan != set.Entity.Plan {
				return delta.Both // as the limits of both are
			}
			return delta.Same
		})

	cascadeMember = member{
		key: "cascade",
		decode: func(d *decoder, n *yaml.Node, path string, r *admin.Declared) (ok bool) {
			r.Entity.Cascade, ok = d.Truth(n, path)
			return ok
		},
		encode: func(w *strictyaml.Writer, depth int, r *admin.Declared) {
			if r.Entity.Cascade {
				w.Line(depth, "cascade", "true")
			}
		},
		diff: func(old, set *admin.Declared) []delta.Field {
			return delta.Text("cascade", strconv.FormatBool(old.Entity.Cascade), strconv.FormatBool(set.Entity.Cascade),
				delta.OfParents(old, set))
		},
	}
	metadataMember = member{
		key: "metadata", block: true,
		decode: func(d *decoder, n *yaml.Node, path string, r *admin.Declared) (ok bool) {
			r.Entity.Metadata, ok = d.metadata(n, path)
			return ok
		},
		encode: func(w *strictyaml.Writer, depth int, r *admin.Declared) {
			if len(r.Entity.Metadata) > 0 {
				w.Key(depth, "metadata")
			}
			for _, k := range slices.Sorted(maps.Keys(r.Entity.Metadata)) {
				w.Text(depth+1, k, strictyaml.Escape(r.Entity.Metadata[k]))
			}
		},
		diff: func(old, set *admin.Declared) (fs []delta.Field) {
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
				fs = append(fs, delta.Text("metadata."+strictyaml.Quote(k), text(old, k), text(set, k), delta.Same)...)
			}
			return fs
		},
	}
)

// textMember returns a member that is text, "" by default.
func textMember[S ~string](key string, of func(*admin.Declared) *S,
	check func(d *decoder, n *yaml.Node, path, text string) bool, moves func(old, set *admin.Declared) delta.Moves,
) member {
	return member{
		key: key,
		decode: func(d *decoder, n *yaml.Node, path string, r *admin.Declared) bool {
			text, ok := d.Text(n, path)
			*of(r) = S(text)
			return ok && (check == nil || check(d, n, path, text))
		},
		encode: func(w *strictyaml.Writer, depth int, r *admin.Declared) {
			if text := string(*of(r)); text != "" {
				w.Text(depth, key, strictyaml.Escape(text))
			}
		},
		diff: func(old, set *admin.Declared) []delta.Field {
			m := delta.Same
			if moves != nil {
				m = moves(old, set)
			}
			return delta.Text(key, string(*of(old)), string(*of(set)), m)
		},
	}
}

// anyEntity is how admin.AnyEntity may be written.
const anyEntity = "any"

// normal changes what a member decodes.
func (m member) normal(f func(r *admin.Declared)) member {
	decode := m.decode
	m.decode = func(d *decoder, n *yaml.Node, path string, r *admin.Declared) bool {
		defer f(r)
		return decode(d, n, path, r)
	}
	return m
}

// oneOf accepts some texts.
func oneOf(allowed ...string) func(d *decoder, n *yaml.Node, path, text string) bool {
	return func(d *decoder, n *yaml.Node, path, text string) bool {
		if slices.Contains(allowed, text) {
			return true
		}
		d.Bad(d.Follow(n), path, strictyaml.Allowed(text, allowed), "%s is unknown", strictyaml.Quote(text))
		return false
	}
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
