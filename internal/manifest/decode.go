package manifest

import (
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
	t := &together{manifests: make(map[[2]string]*Manifest), claims: make(map[claim]owner)}
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
	return slices.SortedFunc(maps.Values(t.manifests), func(a, b *Manifest) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}), nil
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
}

var rootKeys = []string{"namespace", "manifest", "variables", "system", "resources", "entities"}

func (d *decoder) document(root *yaml.Node) {
	members := make(map[string]*yaml.Node)
	if !d.Fields(root, "", rootKeys, func(key string, v *yaml.Node) { members[key] = v }) {
		return
	}
	d.Variables(members["variables"])
	if members["namespace"] == nil {
		d.Bad(root, "", "add namespace: NAME", "namespace is missing")
	}
	namespace, named := d.name(members["namespace"], "namespace", "")
	name, ok := d.name(members["manifest"], "manifest", DefaultName)
	ok = ok && named && namespace != ""
	m := &Manifest{Namespace: namespace, Name: name, Records: make(map[Key]*Record)}
	if known := d.manifests[[2]string{namespace, name}]; ok && known != nil {
		m = known
	} else if ok {
		d.manifests[[2]string{namespace, name}] = m
	}
	d.records(members, func(k Key, n *yaml.Node, r *Record) {
		r.at = place{d.file, n.Line, n.Column}
		if first, twice := d.claims[claim{m.Namespace, k}]; twice && ok {
			d.Bad(
				n, "", "declare it once", "%s is already declared in %s%s", k, first.at,
				byOther(first.manifest, m.Name),
			)
			return
		}
		d.claims[claim{m.Namespace, k}] = owner{m.Name, r.at, d, n}
		m.Records[k] = r
	})
}

// name reads the name of a namespace or of a manifest.
func (d *decoder) name(n *yaml.Node, path, fallback string) (string, bool) {
	if n == nil {
		return fallback, true
	}
	name, ok := d.Text(n, path)
	return name, ok && d.id(n, path, name)
}

type adder func(Key, *yaml.Node, *Record)

// records reads the sections of a document.
func (d *decoder) records(sections map[string]*yaml.Node, add adder) {
	if v := sections["system"]; v != nil {
		d.limitsOf(d.Follow(v), v, "system", admin.Scope{}, add)
	}
	if v := sections["resources"]; v != nil {
		d.ids(v, "resources", func(name, path string, k, v *yaml.Node) {
			d.limitsOf(k, v, path, admin.Scope{Resource: name}, add)
		})
	}
	if v := sections["entities"]; v != nil {
		d.ids(v, "entities", func(id, path string, k, v *yaml.Node) { d.entity(k, v, path, id, add) })
	}
}

// ids calls member for each key of a mapping that is an ID.
func (d *decoder) ids(n *yaml.Node, path string, member func(id, path string, k, v *yaml.Node)) {
	d.Mapping(n, path, func(id string, k, v *yaml.Node) {
		at := path + "." + strictyaml.Quote(id)
		if d.id(k, at, id) {
			member(id, at, k, v)
		}
	})
}

func byOther(first, second string) string {
	if first == second {
		return ""
	}
	return ", by manifest " + strictyaml.Quote(first)
}

// id checks an ID.
func (d *decoder) id(n *yaml.Node, path, id string) bool {
	n = d.Follow(n)
	var bad *weir.ConfigError
	if id == "" {
		d.Bad(n, path, "", "must not be empty")
	} else if err := (admin.Scope{Entity: id}).Validate(); errors.As(err, &bad) {
		d.Bad(
			n, path, "an id has 1 to 256 printable bytes and must not be _, wcu or "+weir.DefaultResource, "%s",
			bad.Reason,
		)
	} else {
		return true
	}
	return false
}

// record reads the members of a record, and passes any other key to others. It returns how many members it read,
// and false if one of them is wrong.
func (d *decoder) record(n *yaml.Node, path string, members []member, r *admin.Declared,
	others map[string]func(v *yaml.Node, path string),
) (given int, good bool) {
	var allowed []string
	for _, m := range members {
		allowed = append(allowed, m.key)
	}
	allowed = slices.AppendSeq(allowed, maps.Keys(others))
	good = true
	isMap := d.Fields(n, path, allowed, func(key string, v *yaml.Node) {
		if i := slices.IndexFunc(members, func(m member) bool { return m.key == key }); i >= 0 {
			given++
			good = members[i].decode(d, v, path+"."+key, r) && good
			return
		}
		others[key](v, path+"."+key)
	})
	return given, good && isMap
}

// limitsOf reads the limits of a scope, and the settings that go with them.
func (d *decoder) limitsOf(k, n *yaml.Node, path string, scope admin.Scope, add adder) {
	key := Key{Scope: scope}
	kind := key.kind()
	r := &Record{Declared: admin.Declared{Limits: &admin.ScopedLimits{Scope: scope}}}
	switch given, ok := d.record(n, path, kind.members, &r.Declared, nil); {
	case ok && given == 0:
		d.Bad(k, path, kind.hint, "%s", kind.empty)
	case ok:
		add(key, k, r)
	}
}

// entity reads an entity. The entity itself is declared if it has any properties, or if it has nothing at all. Limits
// alone do not declare the entity; they hold whether or not it was created.
func (d *decoder) entity(k, n *yaml.Node, path, id string, add adder) {
	r := &Record{Declared: admin.Declared{Entity: &admin.Entity{ID: id}}}
	limited := false
	given, ok := d.record(n, path, kinds.entity.members, &r.Declared, map[string]func(*yaml.Node, string){
		"resources": func(v *yaml.Node, path string) {
			limited = true
			d.Mapping(v, path, func(name string, k, v *yaml.Node) {
				at := path + "." + strictyaml.Quote(name)
				scope := admin.Scope{Entity: id, Resource: name}
				if name == weir.DefaultResource {
					scope.Resource = ""
				} else if !d.id(k, at, name) {
					return
				}
				d.limitsOf(k, v, at, scope, add)
			})
		},
	})
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

// limits reads limits by name.
func (d *decoder) limits(n *yaml.Node, path string) ([]weir.Limit, bool) {
	var ls []weir.Limit
	good := d.Mapping(n, path, func(name string, k, v *yaml.Node) {
		at := path + "." + strictyaml.Quote(name)
		if !d.id(k, at, name) {
			return
		}
		l, ok := d.limit(k, v, at)
		if l.Name = name; ok {
			ls = append(ls, l)
		}
	})
	n = d.Follow(n)
	switch given := len(n.Content) / 2; {
	case !good:
		return nil, false
	case given == 0:
		d.Bad(n, path, "add NAME: {capacity: N}", "needs at least one limit")
		return nil, false
	case len(ls) < given:
		return nil, false
	}
	slices.SortFunc(ls, byName)
	var bad *weir.ConfigError
	if err := (&admin.ScopedLimits{Limits: ls}).Validate(); errors.As(err, &bad) {
		d.Bad(n, path, "", "%s", strings.TrimPrefix(bad.Error(), "limits: "))
		return nil, false
	}
	return ls, true
}

var limitKeys = []string{"capacity", "burst", "refill_amount", "refill_period", "enforce"}

func (d *decoder) limit(k, n *yaml.Node, path string) (l weir.Limit, good bool) {
	var capacity int64
	l.Period, good = 60e9, true
	has := false
	isMap := d.Fields(n, path, limitKeys, func(key string, v *yaml.Node) {
		var ok bool
		at := path + "." + key
		switch key {
		case "capacity":
			has = true
			capacity, ok = d.Count(v, at)
		case "burst":
			l.Burst, ok = d.Count(v, at)
		case "refill_amount":
			l.Amount, ok = d.Count(v, at)
		case "enforce":
			l.Enforce, ok = d.enforce(v, at)
		default:
			l.Period, ok = d.Period(v, at)
		}
		good = good && ok
	})
	if isMap && !has {
		d.Bad(
			k, path, "add capacity: the tokens issued in each refill_period and, by default, the burst",
			"capacity is missing",
		)
	}
	l.Amount, l.Burst = cmp.Or(l.Amount, capacity), cmp.Or(l.Burst, capacity)
	return l, good && isMap && has
}

// enforce reads which entities a limit refuses.
func (d *decoder) enforce(n *yaml.Node, path string) (e weir.Enforce, ok bool) {
	text, tag, ok := d.Scalar(n, path, "text")
	if !ok {
		return e, false
	}
	if tag == "!!str" {
		if e, err := weir.ParseEnforce(text); err == nil {
			return e, true
		}
	}
	hint := strictyaml.Allowed(text, []string{"on", "shadow", "1% to 99%"})
	if tag == "!!null" {
		d.Not(n, path, hint, "text")
	} else {
		d.Bad(d.Follow(n), path, hint, "%s is unknown", strictyaml.Quote(text))
	}
	return 0, false
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
