package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// Decode reads manifests. Documents with the same namespace and name, in any files and order, form one manifest. All
// mistakes are returned together, as [Errors], without any manifests.
func Decode(sources []Source, opts Options) ([]*Manifest, error) {
	t := &together{sources: sources, manifests: make(map[[2]string]*Manifest), claims: make(map[claim]owner)}
	declared := make(map[string]bool)
	for i := range sources {
		d := &Reader{opts: opts, src: &sources[i]}
		for _, doc := range d.documents() {
			d.document(t, doc)
			for name := range d.vars {
				declared[name] = true
			}
		}
		t.errs = append(t.errs, d.errs...)
	}
	t.checkParents()
	for name := range opts.Set {
		if !declared[name] {
			h := "declare it under variables"
			if near := nearest(name, slices.Sorted(maps.Keys(declared))); near != "" {
				h = "did you mean " + near + "?"
			}
			t.errs = append(t.errs, &Diagnostic{
				File: "--set", Line: 1, Column: 1, Message: quote(name) + " is not declared in any manifest", Hint: h,
			})
		}
	}
	if len(t.errs) > 0 {
		t.errs.sort()
		return nil, t.errs
	}
	all := slices.Collect(maps.Values(t.manifests))
	slices.SortFunc(all, func(a, b *Manifest) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// claim is a record of a namespace.
type claim struct {
	namespace string
	key       Key
}

type owner struct {
	manifest string
	at       place
}

// together collects the manifests of several sources.
type together struct {
	sources   []Source
	manifests map[[2]string]*Manifest // by namespace and name
	claims    map[claim]owner
	errs      Errors
}

// documents returns the non-empty documents of the source, or all if every one is empty.
func (d *Reader) documents() []*yaml.Node {
	var docs []*yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(d.src.Text))
	for err == nil {
		var doc yaml.Node
		if err = loader.Load(&doc); err != nil {
			break
		}
		root := &doc
		if doc.Kind == yaml.DocumentNode && len(doc.Content) > 0 {
			root = doc.Content[0]
		}
		if root.Kind != 0 && root.ShortTag() != "!!null" {
			docs = append(docs, root)
		}
	}
	if !errors.Is(err, io.EOF) {
		n := &yaml.Node{Line: 1, Column: 1}
		text := err.Error()
		var load *yaml.LoadError
		if errors.As(err, &load) {
			n.Line, n.Column, text = load.Mark.Line, load.Mark.Column, load.Message
			if load.ContextMsg != "" {
				text = load.ContextMsg + ": " + text
			}
		}
		d.bad(n, "", "", "is not YAML: %s", text)
	} else if len(docs) == 0 {
		d.bad(&yaml.Node{Line: 1, Column: 1}, "", "a manifest needs at least: namespace: NAME", "is empty")
	}
	return docs
}

var rootKeys = []string{"namespace", "manifest", "variables", "system", "resources", "entities"}

func (d *Reader) document(t *together, root *yaml.Node) {
	d.vars = make(map[string]*variable)
	members := make(map[string]*yaml.Node)
	if !d.Fields(root, "", rootKeys, func(key string, v *yaml.Node) { members[key] = v }) {
		return
	}
	if v := members["variables"]; v != nil {
		d.variables(v)
	}
	if members["namespace"] == nil {
		d.bad(root, "", "add namespace: NAME", "namespace is missing")
	}
	namespace, named := d.name(members["namespace"], "namespace", "")
	name, ok := d.name(members["manifest"], "manifest", DefaultName)
	ok = ok && named && namespace != ""
	m := &Manifest{Namespace: namespace, Name: name, Records: make(map[Key]*Record)}
	if ok {
		m = t.manifest(m)
	}
	if !slices.Contains(m.Files, d.src.Name) {
		m.Files = append(m.Files, d.src.Name)
	}
	d.records(members, func(k Key, n *yaml.Node, r *Record) {
		r.at = place{d.src.Name, n.Line, n.Column}
		if first, twice := t.claims[claim{m.Namespace, k}]; twice && ok {
			d.bad(
				n, "", "declare it once", "%s is already declared in %s%s", k, first.at,
				byOther(first.manifest, m.Name),
			)
			return
		}
		t.claims[claim{m.Namespace, k}] = owner{m.Name, r.at}
		m.Records[k] = r
	})
	if d.tired() {
		d.bad(root, "", "write the values out", "its aliases expand to too much text")
	}
}

// name reads the name of a namespace or of a manifest.
func (d *Reader) name(n *yaml.Node, path, fallback string) (string, bool) {
	if n == nil {
		return fallback, true
	}
	name, ok := d.Text(n, path)
	return name, ok && d.id(n, path, name)
}

type adder func(Key, *yaml.Node, *Record)

// records reads the sections of a document.
func (d *Reader) records(sections map[string]*yaml.Node, add adder) {
	if v := sections["system"]; v != nil {
		d.limitsOf(d.follow(v), v, "system", admin.Scope{}, add)
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
func (d *Reader) ids(n *yaml.Node, path string, member func(id, path string, k, v *yaml.Node)) {
	d.Mapping(n, path, func(id string, k, v *yaml.Node) {
		at := path + "." + quote(id)
		if d.id(k, at, id) {
			member(id, at, k, v)
		}
	})
}

func byOther(first, second string) string {
	if first == second {
		return ""
	}
	return ", by manifest " + quote(first)
}

// manifest returns the one manifest of that namespace and name.
func (t *together) manifest(m *Manifest) *Manifest {
	k := [2]string{m.Namespace, m.Name}
	if t.manifests[k] == nil {
		t.manifests[k] = m
	}
	return t.manifests[k]
}

// id checks an ID.
func (d *Reader) id(n *yaml.Node, path, id string) bool {
	n = d.follow(n)
	var bad *weir.ConfigError
	if id == "" {
		d.bad(n, path, "", "must not be empty")
	} else if err := (admin.Scope{Entity: id}).Validate(); errors.As(err, &bad) {
		d.bad(
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
func (d *Reader) record(n *yaml.Node, path string, members []member, r *Record,
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
func (d *Reader) limitsOf(k, n *yaml.Node, path string, scope admin.Scope, add adder) {
	key := Key{Scope: scope}
	kind := key.kind()
	r := &Record{Limits: &admin.ScopedLimits{Scope: scope}}
	switch given, ok := d.record(n, path, kind.members, r, nil); {
	case ok && given == 0:
		d.bad(k, path, kind.hint, "%s", kind.empty)
	case ok:
		add(key, k, r)
	}
}

// entity reads an entity. The entity itself is declared if it has any properties, or if it has nothing at all. Limits
// alone do not declare the entity; they hold whether or not it was created.
func (d *Reader) entity(k, n *yaml.Node, path, id string, add adder) {
	r := &Record{Entity: &admin.Entity{ID: id}}
	limited := false
	given, ok := d.record(n, path, kinds.entity.members, r, map[string]func(*yaml.Node, string){
		"resources": func(v *yaml.Node, path string) {
			limited = true
			d.Mapping(v, path, func(name string, k, v *yaml.Node) {
				at := path + "." + quote(name)
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
		d.bad(k, path+"."+bad.Field, "", "%s", bad.Reason)
		return
	}
	add(Key{Scope: admin.Scope{Entity: id}, Own: true}, k, r)
}

// limits reads limits by name.
func (d *Reader) limits(n *yaml.Node, path string) ([]weir.Limit, bool) {
	var ls []weir.Limit
	good := d.Mapping(n, path, func(name string, k, v *yaml.Node) {
		at := path + "." + quote(name)
		if !d.id(k, at, name) {
			return
		}
		l, ok := d.limit(k, v, at)
		if l.Name = name; ok {
			ls = append(ls, l)
		}
	})
	n = d.follow(n)
	switch given := len(n.Content) / 2; {
	case !good:
		return nil, false
	case given == 0:
		d.bad(n, path, "add NAME: {capacity: N}", "needs at least one limit")
		return nil, false
	case len(ls) < given:
		return nil, false
	}
	slices.SortFunc(ls, byName)
	var bad *weir.ConfigError
	if err := (&admin.ScopedLimits{Limits: ls}).Validate(); errors.As(err, &bad) {
		d.bad(n, path, "", "%s", strings.TrimPrefix(bad.Error(), "limits: "))
		return nil, false
	}
	return ls, true
}

var limitKeys = []string{"capacity", "burst", "refill_amount", "refill_period", "enforce"}

func (d *Reader) limit(k, n *yaml.Node, path string) (l weir.Limit, good bool) {
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
			l.Period, ok = d.period(v, at)
		}
		good = good && ok
	})
	if isMap && !has {
		d.bad(
			k, path, "add capacity: the tokens issued in each refill_period and, by default, the burst",
			"capacity is missing",
		)
	}
	l.Amount, l.Burst = cmp.Or(l.Amount, capacity), cmp.Or(l.Burst, capacity)
	return l, good && isMap && has
}

// enforce reads which entities a limit refuses.
func (d *Reader) enforce(n *yaml.Node, path string) (e weir.Enforce, ok bool) {
	s, ok := d.scalar(n, path, "text")
	if !ok {
		return e, false
	}
	if s.tag == "!!str" {
		var err error
		if e, err = weir.ParseEnforce(s.text); err == nil {
			return e, true
		}
	}
	hint := "allowed: on, shadow, 1% to 99%"
	near := nearest(s.text, []string{"on", "shadow"})
	if _, err := weir.ParseEnforce(s.text + "%"); err == nil {
		near = s.text + "%"
	}
	if near != "" {
		hint += "; did you mean " + near + "?"
	}
	if s.tag == "!!null" {
		d.bad(d.follow(n), path, hint, "is %s", kindOf(d.follow(n)))
	} else {
		d.bad(d.follow(n), path, hint, "%s is unknown", quote(s.text))
	}
	return 0, false
}

// checkParents rejects cycles of parents.
func (t *together) checkParents() {
	for _, m := range t.manifests {
		for _, k := range keysOf(m.Records) {
			r := m.Records[k]
			if r.Entity == nil || r.Entity.Parent == "" {
				continue
			}
			road := []string{k.Entity}
			for at := r; at != nil && at.Entity != nil && at.Entity.Parent != "" && len(road) <= len(m.Records); {
				road = append(road, at.Entity.Parent)
				if at.Entity.Parent == k.Entity {
					break
				}
				at = m.Records[Key{Scope: admin.Scope{Entity: at.Entity.Parent}, Own: true}]
			}
			if n := len(road); n > 1 && road[n-1] == k.Entity && k.Entity == slices.Min(road) {
				d := Reader{src: &t.sources[slices.IndexFunc(t.sources, func(s Source) bool {
					return s.Name == r.at.file
				})]}
				d.bad(&yaml.Node{Kind: yaml.ScalarNode, Value: k.Entity, Line: r.at.line, Column: r.at.column},
					"entities."+quote(k.Entity)+".parent", "", "forms a cycle: %s", strings.Join(road, " → "))
				t.errs = append(t.errs, d.errs...)
			}
		}
	}
}
