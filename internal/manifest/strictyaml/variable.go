package strictyaml

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/internal/clock/nearest"
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
func (r *Reader) Variables(n *yaml.Node) {
	if r.vars = make(map[string]*variable); n == nil {
		return
	}
	r.Mapping(n, "variables", func(name string, k, v *yaml.Node) {
		path := "variables." + name
		if !variableName.MatchString(name) {
			r.Bad(k, "variables", "use letters, digits and _", "%s is not a valid variable name", Quote(name))
			return
		}
		r.declared = append(r.declared, name)
		v = r.Follow(v)
		switch tag := v.ShortTag(); {
		case v.Kind == yaml.MappingNode && len(v.Content) == 0:
			r.vars[name] = &variable{}
		case v.Kind == yaml.ScalarNode && (tag == "!!str" || tag == "!!int" || tag == "!!bool"):
			r.vars[name] = &variable{fallback: v.Value, has: true}
		default:
			r.Bad(v, path, "write a default value, or {} to require one", "is %s, not a value", kindOf(v))
		}
	})
}

// fill replaces ${NAME} in a text, and $${ by ${.
func (r *Reader) fill(n *yaml.Node, path string) (text string, filled, ok bool) {
	ok = true
	text = reference.ReplaceAllStringFunc(n.Value, func(ref string) string {
		if strings.HasPrefix(ref, "$$") {
			return ref[1:]
		}
		name := ref[2 : len(ref)-1]
		v := r.vars[name]
		if v == nil {
			h := "declare it under variables, or write $" + ref + " to keep it as text"
			if near := nearest.To(name, slices.Sorted(maps.Keys(r.vars))); near != "" {
				h += "; did you mean ${" + near + "}?"
			}
			r.Bad(n, path, h, "%s is not declared", ref)
			ok = false
			return ""
		}
		filled = true
		if value, set := r.opts.Set[name]; set {
			return value
		}
		if r.opts.Env != nil {
			if value, set := r.opts.Env(name); set {
				return value
			}
		}
		if !v.has {
			hint := "add --set " + name + "=VALUE, set " + EnvPrefix + name + ", or add a value under variables"
			r.Bad(n, path, hint, "%s has no value", ref)
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
