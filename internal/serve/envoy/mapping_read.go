package envoy

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// ReadMapping reads a mapping. All errors are returned together, as [strictyaml.Errors].
//
//	domains:
//	  edge:                         # as in Envoy's filter; "*" applies to all others
//	    namespace: prod             # default: the server's
//	    descriptors:                # the first match applies
//	      - match: [tenant, user]   # the keys of all entries, in order; or, narrower, KEY=VALUE and KEY=PREFIX*
//	        entity: "{tenant}/{user}"   # {hash(KEY)}: the hash of a secret, as of httplimit.KeyID
//	        resource: api           # default: the domain
//	        tokens: {tpm: hits}     # default: the hits, from each limit that counts requests
//	        forced: true            # debited even if it does not fit, for costs known afterwards
//	    builtin: true               # apply the built-in rule if none matches; default: unknown
func ReadMapping(src strictyaml.Source) (*Mapping, error) {
	m := &Mapping{domains: make(map[string]*domain)}
	err := strictyaml.Read(src, func(r *strictyaml.Reader, root *yaml.Node) {
		seen := false
		r.Fields(root, "", []string{"domains"}, func(_ string, v *yaml.Node) {
			seen = true
			r.Mapping(v, "domains", func(name string, k, v *yaml.Node) {
				if name == "" {
					r.Bad(k, "domains", "Envoy sends no request without one", "a domain must not be empty")
				}
				m.domains[name] = readDomain(r, v, "domains."+name)
			})
		})
		if !seen {
			r.Bad(root, "", "a mapping needs at least: domains: {NAME: {builtin: true}}", "domains is missing")
		}
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func readDomain(r *strictyaml.Reader, n *yaml.Node, path string) *domain {
	d := &domain{}
	r.Fields(n, path, []string{"namespace", "descriptors", "builtin"}, func(key string, v *yaml.Node) {
		at := path + "." + key
		switch key {
		case "namespace":
			name, ok := r.Text(v, at)
			if err := (admin.Scope{Entity: name}).Validate(); ok && (err != nil || name == "") {
				r.Bad(v, at, "an id has 1 to 256 printable bytes; left out it is the server's",
					"is no id of a namespace")
			}
			d.namespace = name
		case "builtin":
			d.builtin, _ = r.Truth(v, at)
		case "descriptors":
			r.List(v, at, func(path string, v *yaml.Node) {
				if next, ok := readRule(r, v, path); ok {
					d.rules = append(d.rules, next)
				}
			})
		}
	})
	return d
}

func readRule(r *strictyaml.Reader, n *yaml.Node, path string) (ru rule, ok bool) {
	members := make(map[string]*yaml.Node)
	if !r.Fields(n, path, []string{"match", "entity", "resource", "tokens", "forced"},
		func(key string, v *yaml.Node) { members[key] = v }) {
		return ru, false
	}
	if v := members["match"]; v == nil {
		r.Bad(n, path, "name the keys of the descriptor's entries: match: [user]", "match is missing")
	} else {
		r.List(v, path+".match", func(at string, v *yaml.Node) {
			if text, ok := r.Text(v, at); ok {
				ru.match = append(ru.match, readPattern(r, v, at, text))
			}
		})
		if len(ru.match) == 0 {
			r.Bad(v, path+".match", "", "names no entry")
		}
	}
	if v := members["entity"]; v == nil {
		r.Bad(n, path, `say whose tokens are spent: entity: "{user}"`, "entity is missing")
	} else {
		ru.entity = readTemplate(r, v, path+".entity", ru.match)
	}
	ru.resource = template{{entry: isDomain}}
	if v := members["resource"]; v != nil {
		ru.resource = readTemplate(r, v, path+".resource", ru.match)
	}
	if v := members["tokens"]; v != nil {
		ru.tokens = readTokens(r, v, path+".tokens")
	}
	if v := members["forced"]; v != nil {
		ru.forced, _ = r.Truth(v, path+".forced")
	}
	return ru, true
}

func readPattern(r *strictyaml.Reader, n *yaml.Node, path, text string) pattern {
	p := pattern{}
	p.key, p.value, p.valued = strings.Cut(text, "=")
	if p.key == "" {
		r.Bad(n, path, "write KEY, KEY=VALUE or KEY=PREFIX*", "names no key")
	}
	if p.valued {
		p.value, p.prefix = strings.CutSuffix(p.value, "*")
	}
	return p
}

// readTemplate reads text that may contain {key}.
func readTemplate(r *strictyaml.Reader, n *yaml.Node, path string, match []pattern) template {
	rest, ok := r.Text(n, path)
	if !ok {
		return nil
	}
	if rest == "" {
		r.Bad(n, path, "", "must not be empty")
	}
	var t template
	for rest != "" {
		text, more, found := strings.Cut(rest, "{")
		if text != "" {
			t = append(t, part{text: text, entry: isText})
		}
		if !found {
			break
		}
		key, after, closed := strings.Cut(more, "}")
		if !closed {
			r.Bad(n, path, "write {KEY}, with the key of an entry", "has a { without }")
			return nil
		}
		index := func(key string) int {
			return slices.IndexFunc(match, func(p pattern) bool { return p.key == key })
		}
		next := part{entry: index(key)}
		if secret, ok := strings.CutPrefix(key, "hash("); ok && next.entry < 0 && strings.HasSuffix(secret, ")") {
			next = part{entry: index(strings.TrimSuffix(secret, ")")), hash: true}
		}
		switch {
		case next.entry < 0 && key == "domain":
			next.entry = isDomain
		case next.entry < 0:
			r.Bad(n, path, "allowed: "+strings.Join(keysOf(match), ", ")+", and hash(KEY) of a secret",
				"%q is not one of the keys in match", key)
			return nil
		}
		t = append(t, next)
		rest = after
	}
	return t
}

func keysOf(match []pattern) []string {
	keys := make([]string, 0, len(match)+1)
	for _, p := range match {
		keys = append(keys, p.key)
	}
	return append(keys, "domain")
}

func readTokens(r *strictyaml.Reader, n *yaml.Node, path string) (all []amount) {
	good := r.Mapping(n, path, func(limit string, k, v *yaml.Node) {
		at := path + "." + limit
		if (admin.Scope{Entity: limit}).Validate() != nil || limit == "" {
			r.Bad(k, path, "", "has a key that is no name of a limit")
		}
		a := amount{limit: limit}
		if r.IsText(v) {
			if text, ok := r.Text(v, at); ok && text != "hits" {
				r.Bad(v, at, "allowed: hits, or a whole number of tokens", "is neither hits nor a number")
			}
		} else {
			a.fixed, _ = r.Count(v, at)
		}
		all = append(all, a)
	})
	if good && len(all) == 0 {
		r.Bad(n, path, "leave it out for each limit that counts requests", "names no limit")
	}
	return all
}
