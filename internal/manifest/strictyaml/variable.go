package strictyaml

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// variable is a variable that a document declares.
type variable struct {
	fallback string
	has      bool
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reference    = regexp.MustCompile(`\$?\$\{[^}]*\}`)
)

// Variables reads the variables that a document declares, at the key variables: each name with its default value, or {}
// if it must be set. Nil is none. They replace those of the document before it.
func (d *Reader) Variables(n *yaml.Node) {
	if d.vars = make(map[string]*variable); n == nil {
		return
	}
	d.Mapping(n, "variables", func(name string, k, v *yaml.Node) {
		path := "variables." + name
		if !variableName.MatchString(name) {
			d.Bad(k, "variables", "use letters, digits and _", "%s is not a valid variable name", Quote(name))
			return
		}
		d.declared = append(d.declared, name)
		v = d.Follow(v)
		switch tag := v.ShortTag(); {
		case v.Kind == yaml.MappingNode && len(v.Content) == 0:
			d.vars[name] = &variable{}
		case v.Kind == yaml.ScalarNode && (tag == "!!str" || tag == "!!int" || tag == "!!bool"):
			d.vars[name] = &variable{fallback: v.Value, has: true}
		default:
			d.Bad(v, path, "write a default value, or {} to require one", "is %s, not a value", kindOf(v))
		}
	})
}

// fill replaces ${NAME} in a text, and $${ by ${.
func (d *Reader) fill(n *yaml.Node, path string) (text string, filled, ok bool) {
	ok = true
	text = reference.ReplaceAllStringFunc(n.Value, func(ref string) string {
		if strings.HasPrefix(ref, "$$") {
			return ref[1:]
		}
		name := ref[2 : len(ref)-1]
		v := d.vars[name]
		if v == nil {
			h := "declare it under variables, or write $" + ref + " to keep it as text"
			if near := Nearest(name, slices.Sorted(maps.Keys(d.vars))); near != "" {
				h += "; did you mean ${" + near + "}?"
			}
			d.Bad(n, path, h, "%s is not declared", ref)
			ok = false
			return ""
		}
		filled = true
		if value, set := d.opts.Set[name]; set {
			return value
		}
		if d.opts.Env != nil {
			if value, set := d.opts.Env(name); set {
				return value
			}
		}
		if !v.has {
			d.Bad(n, path, "add --set "+name+"=VALUE, or a value under variables", "%s has no value", ref)
			ok = false
		}
		return v.fallback
	})
	return text, filled, ok
}

// Escape returns text in which nothing is taken for a variable: the inverse of filling them in.
func Escape(text string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string { return "$" + ref })
}
