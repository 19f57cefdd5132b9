package manifest

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
	used     bool
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reference    = regexp.MustCompile(`\$?\$\{[^}]*\}`)
)

// variables reads the declared variables of a document: each name with its default value, or {} if it must be set.
func (d *Reader) variables(n *yaml.Node) {
	d.Mapping(n, "variables", func(name string, k, v *yaml.Node) {
		path := "variables." + name
		if !variableName.MatchString(name) {
			d.bad(k, "variables", "use letters, digits and _", "%s is not a valid variable name", quote(name))
			return
		}
		v = d.follow(v)
		switch tag := v.ShortTag(); {
		case v.Kind == yaml.MappingNode && len(v.Content) == 0:
			d.vars[name] = &variable{}
		case v.Kind == yaml.ScalarNode && (tag == "!!str" || tag == "!!int" || tag == "!!bool"):
			d.vars[name] = &variable{fallback: v.Value, has: true}
		default:
			d.bad(v, path, "write a default value, or {} to require one", "is %s, not a value", kindOf(v))
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
			if near := nearest(name, slices.Sorted(maps.Keys(d.vars))); near != "" {
				h += "; did you mean ${" + near + "}?"
			}
			d.bad(n, path, h, "%s is not declared", ref)
			ok = false
			return ""
		}
		filled, v.used = true, true
		if value, set := d.opts.Set[name]; set {
			return value
		}
		if d.opts.Env != nil {
			if value, set := d.opts.Env(name); set {
				return value
			}
		}
		if !v.has {
			d.bad(n, path, "add --set "+name+"=VALUE, or a value under variables", "%s has no value", ref)
			ok = false
		}
		return v.fallback
	})
	return text, filled, ok
}

// escape is the inverse of fill.
func escape(text string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string { return "$" + ref })
}
