package manifest

import (
	"errors"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
)

var entityKeys = []string{"name", "parent", "cascade", "metadata", "resources"}

// entity reads an entity. The entity itself is declared if it has any properties, or if it has nothing at all. Limits
// alone do not declare the entity; they hold whether or not it was created.
func (d *decoder) entity(k, n *yaml.Node, path, id string, add adder) {
	e := &weir.Entity{ID: id}
	own, good := true, true
	isMap := d.fields(n, path, entityKeys, func(key string, v *yaml.Node) {
		var ok bool
		at := path + "." + key
		switch key {
		case "resources":
			own = false
			d.entityResources(v, at, id, add)
			return
		case "name":
			e.Name, ok = d.text(v, at)
		case "parent":
			if e.Parent, ok = d.text(v, at); ok {
				ok = d.id(v, at, e.Parent)
			}
		case "cascade":
			e.Cascade, ok = d.truth(v, at)
		default:
			e.Metadata, ok = d.metadata(v, at)
		}
		good = good && ok
	})
	if n = d.follow(n); !isMap || !good || !own && len(n.Content) == 2 {
		return
	}
	var bad *weir.ConfigError
	if err := e.Validate(); errors.As(err, &bad) {
		d.bad(k, path+"."+bad.Field, "", "%s", bad.Reason)
		return
	}
	add(Key{Scope: weir.Scope{Entity: id}, Own: true}, k, &Record{Entity: e})
}

func (d *decoder) entityResources(n *yaml.Node, path, id string, add adder) {
	d.mapping(n, path, func(name string, k, v *yaml.Node) {
		at := path + "." + quote(name)
		scope := weir.Scope{Entity: id, Resource: name}
		if name == weir.DefaultResource {
			scope.Resource = ""
		} else if !d.id(k, at, name) {
			return
		}
		d.limitsOf(k, v, at, scope, add)
	})
}

func (d *decoder) metadata(n *yaml.Node, path string) (map[string]string, bool) {
	m := make(map[string]string)
	good := true
	isMap := d.mapping(n, path, func(key string, k, v *yaml.Node) {
		at := path + "." + quote(key)
		if key == "" {
			d.bad(k, path, "", "has an empty key")
			good = false
			return
		}
		text, ok := d.text(v, at)
		m[key] = text
		good = good && ok
	})
	if len(m) == 0 {
		m = nil
	}
	return m, isMap && good
}
