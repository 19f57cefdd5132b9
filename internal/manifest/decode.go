package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Decode reads manifests. Documents with the same namespace and name, in any files and order, form one manifest. All
// mistakes are returned together, as [strictyaml.Errors], without any manifests.
func Decode(sources []strictyaml.Source, opts strictyaml.Options) ([]*Manifest, error) {
	t := &together{
		manifests: make(map[[2]string]*Manifest), claims: make(map[claim]owner), files: make(map[string][]*Manifest),
	}
	var readers []*strictyaml.Reader
	for i := range sources {
		d := &decoder{strictyaml.New(&sources[i], opts), sources[i].Name, t}
		readers = append(readers, d.Reader)
		d.Documents("a manifest needs at least: namespace: NAME", d.document)
	}
	t.checkParents()
	if err := strictyaml.Mistakes(readers); err != nil {
		return nil, err
	}
	t.keepFiles(sources)
	all := slices.SortedFunc(maps.Values(t.manifests), func(a, b *Manifest) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	link(all)
	return all, nil
}

// decoder reads the manifests of one source.
type decoder struct {
	*strictyaml.Reader
	file string
	*together
}

// claim is a record of a namespace.
type claim struct {
	namespace string
	key       Key
}

// owner is where a record is declared.
type owner struct {
	manifest string
	at       place
	d        *decoder
	key      *yaml.Node
}

// together collects the manifests of several sources.
type together struct {
	manifests map[[2]string]*Manifest // by namespace and name
	claims    map[claim]owner
	files     map[string][]*Manifest // that each declares
}

// keepFiles keeps the text of the files that declare a single manifest.
func (t *together) keepFiles(sources []strictyaml.Source) {
	shared := make(map[*Manifest]bool)
	for _, src := range sources {
		ms := t.files[src.Name]
		for _, m := range ms {
			shared[m] = shared[m] || len(ms) > 1
			if len(m.files) > 0 {
				m.files = append(m.files, "---\n"...)
			}
			m.files = append(append(m.files, bytes.TrimRight(src.Text, "\n")...), '\n')
		}
	}
	for m := range shared {
		if shared[m] {
			m.files = nil
		}
	}
}

var rootKeys = []string{
	"namespace", "namespaces", "manifest", "moved", "removed", "variables", "system", "plans", "total", "groups",
	"resources", "entities",
}

func (d *decoder) document(root *yaml.Node) {
	members := make(map[string]*yaml.Node)
	if !d.Fields(root, "", rootKeys, func(key string, v *yaml.Node) { members[key] = v }) {
		return
	}
	d.Variables(members["variables"])
	namespaces, ok := d.namespaces(root, members)
	name, named := d.name(members["manifest"], "manifest", DefaultName)
	ok = ok && named
	from, keep := d.ownership(members, name)
	ms := make([]*Manifest, len(namespaces))
	for i, namespace := range namespaces {
		m := &Manifest{Namespace: namespace, Name: name, Records: make(map[Key]*Record)}
		if known := d.manifests[[2]string{namespace, name}]; ok && known != nil {
			m = known
		} else if ok {
			d.manifests[[2]string{namespace, name}] = m
		}
		m.Moved = slices.Compact(slices.Sorted(slices.Values(append(m.Moved, from...))))
		m.Keep = m.Keep || keep
		if !slices.Contains(d.files[d.file], m) {
			d.files[d.file] = append(d.files[d.file], m)
		}
		ms[i] = m
	}
	d.records(members, func(k Key, n *yaml.Node, r *Record) {
		r.at = place{d.file, n.Line, n.Column}
		for _, m := range ms {
			if first, twice := d.claims[claim{m.Namespace, k}]; twice && ok {
				d.Bad(
					n, "", "declare it once", "%s is already declared in %s%s", k, first.at,
					byOther(first.manifest, m.Name),
				)
				return
			}
			if len(ms) > 1 && len(d.claims) >= maxShared {
				d.Bad(n, "", "write files for some of the namespaces each",
					"for %d namespaces, there are more than %d records", len(ms), maxShared)
				return
			}
			d.claims[claim{m.Namespace, k}] = owner{m.Name, r.at, d, n}
			m.Records[k] = r
		}
	})
}

// maxShared bounds the records of documents for several namespaces, whose number is not bounded by that of their text.
const maxShared = 500_000

// namespaces reads for which namespaces the document is: at least one, which is "" if it is not known.
func (d *decoder) namespaces(root *yaml.Node, members map[string]*yaml.Node) (all []string, ok bool) {
	one, list := members["namespace"], members["namespaces"]
	switch {
	case list == nil && one == nil:
		d.Bad(root, "", "add namespace: NAME", "namespace is missing")
	case list == nil:
		name, ok := d.name(one, "namespace", "")
		return []string{name}, ok && name != ""
	case one != nil:
		d.Bad(list, "namespaces", "write one of the two", "is given beside namespace")
	default:
		each := true
		ok = d.List(list, "namespaces", func(path string, v *yaml.Node) {
			switch name, good := d.name(v, path, ""); {
			case !good:
				each = false
			case slices.Contains(all, name):
				d.Bad(v, path, "name it once", "%s is there twice", strictyaml.Quote(name))
			default:
				all = append(all, name)
			}
		})
		if ok = ok && each; ok && len(all) == 0 {
			d.Bad(list, "namespaces", "name at least one, such as [tenant-alpha]", "is empty")
		}
	}
	if len(all) == 0 {
		return []string{""}, false
	}
	return all, ok
}

// name reads the name of a namespace or of a manifest.
func (d *decoder) name(n *yaml.Node, path, fallback string) (string, bool) {
	if n == nil {
		return fallback, true
	}
	name, ok := d.Text(n, path)
	return name, ok && d.ID(n, path, name)
}

type adder func(Key, *yaml.Node, *Record)

// records reads the sections of a document.
func (d *decoder) records(sections map[string]*yaml.Node, add adder) {
	if v := sections["system"]; v != nil {
		d.limitsOf(d.Follow(v), v, "system", admin.Scope{}, add)
	}
	if v := sections["plans"]; v != nil {
		d.ids(v, "plans", func(id, path string, k, v *yaml.Node) { d.plan(k, v, path, id, add) })
	}
	for _, key := range mappings {
		if v := sections[key]; v != nil {
			d.resources(key, v, key, admin.Scope{}, add)
		}
	}
	if v := sections["entities"]; v != nil {
		d.ids(v, "entities", func(id, path string, k, v *yaml.Node) { d.entity(k, v, path, id, add) })
	}
}

// ids calls member for each key of a mapping that is an ID.
func (d *decoder) ids(n *yaml.Node, path string, member func(id, path string, k, v *yaml.Node)) {
	d.Mapping(n, path, func(id string, k, v *yaml.Node) {
		at := path + "." + strictyaml.Quote(id)
		if d.ID(k, at, id) {
			member(id, at, k, v)
		}
	})
}

// mappings are the keys of the limits of an entity or a plan on resources, on groups and on the total, in order.
var mappings = []string{"resources", "groups", "total"}

// resources reads what is below one of the mappings: the limits of an entity, of a plan, or of neither.
func (d *decoder) resources(key string, n *yaml.Node, path string, scope admin.Scope, add adder) {
	if key == "total" {
		scope.Resource = weir.TotalResource
		d.limitsOf(d.Follow(n), n, path, scope, add)
		return
	}
	d.Mapping(n, path, func(name string, k, v *yaml.Node) {
		at := path + "." + strictyaml.Quote(name)
		ok := true
		switch scope.Resource = name; {
		case key == "groups":
			scope.Resource, ok = weir.GroupResource(name), d.Group(k, at, name)
		case name == weir.DefaultResource && scope.Entity != "":
			scope.Resource = ""
		default:
			ok = d.ID(k, at, name)
		}
		if ok {
			d.limitsOf(k, v, at, scope, add)
		}
	})
}

func byOther(first, second string) string {
	if first == second {
		return ""
	}
	return ", by manifest " + strictyaml.Quote(first)
}

// record reads the members of a record, and passes other keys to others. It returns how many members it read, and
// false if one of them is wrong.
func (d *decoder) record(n *yaml.Node, path string, kind *kind, r *admin.Declared,
	others func(key string, v *yaml.Node, path string), keys ...string,
) (given int, good bool) {
	var allowed []string
	for _, m := range kind.members {
		allowed = append(allowed, m.key)
	}
	allowed = append(allowed, keys...)
	values := make(map[string]*yaml.Node)
	isMap := d.Mapping(n, path, func(key string, k, v *yaml.Node) {
		i := slices.Index(allowed, key)
		switch {
		case i < 0:
			hint := strictyaml.Allowed(key, allowed)
			switch {
			case key == groupMember.key:
				hint = "only a resource belongs to a group: write resources: {NAME: {group: NAME}} at the top"
			case kind == &kinds.group && key == "resources":
				hint = "a resource names its group: write resources: {NAME: {group: NAME}} at the top"
			case key == limitsMember.key:
				hint = "write total: {limits: …} for all resources together, or resources: " +
					"{_default_: {limits: …}} for each"
			case slices.Contains(strictyaml.BoundedKeys, key):
				hint = "write bounded: [{until: 2026-12-04T18:00@Europe/Berlin, limits: …}], or scale instead of limits"
			}
			d.Bad(k, path, hint, "unknown key %s", strictyaml.Quote(key))
		case i < len(kind.members):
			values[key] = v
		default:
			others(key, v, path+"."+key)
		}
	})
	good = true
	for _, m := range kind.members {
		if v := values[m.key]; v != nil {
			good = m.decode(d, v, path+"."+m.key, r) && good
		}
	}
	given = len(values)
	return given, good && isMap
}

// limitsOf reads the limits of a scope, and the settings that go with them.
func (d *decoder) limitsOf(k, n *yaml.Node, path string, scope admin.Scope, add adder) {
	key := Key{Scope: scope}
	kind := key.kind()
	r := &Record{Declared: admin.Declared{Limits: &admin.ScopedLimits{Scope: scope}}}
	switch given, ok := d.record(n, path, kind, &r.Declared, nil); {
	case ok && given == 0:
		d.Bad(k, path, kind.hint, "%s", kind.empty)
	case ok:
		var bad *weir.ConfigError
		if errors.As(r.Limits.Validate(), &bad) {
			d.Bad(n, path, "declare it under total, groups or resources", "%s %s", bad.Field, bad.Reason)
			return
		}
		add(key, k, r)
	}
}

// plan reads a plan. Its default limits are declared even if there are none: the plan exists for as long as they do.
func (d *decoder) plan(k, n *yaml.Node, path, id string, add adder) {
	scope, given := admin.Scope{Plan: id}, false
	isMap := d.Fields(n, path, append([]string{"default"}, mappings...), func(key string, v *yaml.Node) {
		if key == "default" {
			given = true
			d.limitsOf(k, v, path+".default", scope, add)
			return
		}
		d.resources(key, v, path+"."+key, scope, add)
	})
	if isMap && !given {
		add(Key{Scope: scope}, k, &Record{Declared: admin.Declared{Limits: &admin.ScopedLimits{Scope: scope}}})
	}
}

// entity reads an entity. The entity itself is declared if it has any properties, or if it has nothing at all. Limits
// alone do not declare the entity; they hold whether or not it was created.
func (d *decoder) entity(k, n *yaml.Node, path, id string, add adder) {
	r := &Record{Declared: admin.Declared{Entity: &admin.Entity{ID: id}}}
	limited := false
	given, ok := d.record(n, path, &kinds.entity, &r.Declared, func(key string, v *yaml.Node, path string) {
		limited = true
		d.resources(key, v, path, admin.Scope{Entity: id}, add)
	}, mappings...)
	if !ok || limited && given == 0 {
		return
	}
	var bad *weir.ConfigError
	if err := r.Entity.Validate(); errors.As(err, &bad) {
		d.Bad(k, path+"."+bad.Field, "", "%s", bad.Reason)
		return
	}
	add(entityKey(id), k, r)
}

// checkParents rejects cycles of parents.
func (t *together) checkParents() {
	for _, m := range t.manifests {
		for k, r := range m.Records {
			road := ancestry(r.Entity, len(m.Records), func(id string) *admin.Entity {
				if of := m.Records[entityKey(id)]; of != nil {
					return of.Entity
				}
				return nil
			})
			if n := len(road); n > 1 && road[n-1] == k.Entity && k.Entity == slices.Min(road) {
				o := t.claims[claim{m.Namespace, k}]
				o.d.Bad(o.key, "entities."+strictyaml.Quote(k.Entity)+".parent", "", "forms a cycle: %s",
					strings.Join(road, " → "))
			}
		}
	}
}

// ancestry returns the IDs of an entity, its parent, and so on: until one is missing, repeats, or has most before it.
// It returns nil for no entity.
func ancestry(e *admin.Entity, most int, of func(id string) *admin.Entity) (road []string) {
	for ; e != nil; e = of(e.Parent) {
		road = append(road, e.ID)
		if e.Parent == "" || len(road) > most {
			break
		}
		if slices.Contains(road, e.Parent) || of(e.Parent) == nil {
			return append(road, e.Parent)
		}
	}
	return road
}
