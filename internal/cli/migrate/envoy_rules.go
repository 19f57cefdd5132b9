package migrate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/serve/envoy"
)

// ratelimitManifest makes a manifest and a mapping of a configuration.
type ratelimitManifest struct {
	imported

	mapping strings.Builder
}

// quoted returns text as YAML reads it.
func quoted(text string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // text always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

func (m *ratelimitManifest) domain(d *ratelimitDomain) {
	fmt.Fprintf(&m.mapping, "  %s:\n    namespace: %s\n    descriptors:", quoted(d.name), quoted(m.Namespace))
	before := m.mapping.Len()
	m.level(d.name, nil, d.below)
	if m.mapping.Len() == before {
		m.mapping.WriteString(" []")
	}
	m.mapping.WriteString("\n")
}

// level adds what is below a path of descriptors. Of a mapping's rules the first that matches applies, so the narrower
// ones come first.
func (m *ratelimitManifest) level(domain string, path, below []*descriptor) {
	below = slices.Clone(below)
	slices.SortStableFunc(below, func(a, b *descriptor) int { return a.rank() - b.rank() })
	for i, d := range below {
		road := append(slices.Clone(path), d)
		broader := slices.DeleteFunc(slices.Clone(below[i+1:]), func(o *descriptor) bool {
			return o.key != d.key || o.rank() == d.rank()
		})
		limited := func(o *descriptor) bool { return o.limit != nil }
		if d.limit != nil || slices.ContainsFunc(broader, limited) {
			m.rule(domain, road)
		}
		if slices.ContainsFunc(broader, func(o *descriptor) bool { return len(o.below) > 0 }) {
			m.differ("%s: descriptors that only match below a broader %s are limited as there, and not admitted",
				nameOf(domain, road), d.key)
		}
		m.level(domain, road, d.below)
	}
}

// nameOf returns the resource of the descriptors at a path. Braces would be taken for values.
func nameOf(domain string, path []*descriptor) string {
	var name strings.Builder
	name.WriteString(domain)
	for _, d := range path {
		name.WriteString("/" + d.text())
	}
	return strings.NewReplacer("{", "(", "}", ")").Replace(name.String())
}

// rule adds the rule for the descriptors at a path, and their limit.
func (m *ratelimitManifest) rule(domain string, path []*descriptor) {
	name, last := nameOf(domain, path), path[len(path)-1]
	scope := admin.Scope{Resource: name}
	if err := scope.Validate(); err != nil {
		m.differ("%s: left out: %v", name, err)
		return
	}
	entity, match := m.entity(name, path)
	for _, d := range path {
		if strings.ContainsAny(d.key, "={}") {
			m.differ("%s: left out: the key %s contains =, { or }", name, d.key)
			return
		}
	}
	fmt.Fprintf(&m.mapping, "\n      - match: [%s]\n        entity: %s\n        resource: %s",
		strings.Join(match, ", "), quoted(entity), quoted(name))
	for _, key := range last.others {
		m.differ("%s: %s is left out", name, key)
	}
	if last.limit == nil || last.limit.unlimited {
		m.differ("%s: has no limits: it is unknown, and admitted unless weir serve --rls-unknown deny is set", name)
		return
	}
	if last.limit.replaces {
		m.differ("%s: replaces is left out: both limits apply", name)
	}
	requests := last.limit.requests
	unit := units[last.limit.unit]
	if requests == 0 {
		unit, requests = units["year"], 1
		m.differ("%s: 0 requests there, 1 in a year here: a limit allows at least one", name)
	}
	l, err := weir.ParseLimit(unit[0] + ":" + strconv.FormatInt(requests, 10) + "/" + unit[1])
	if err != nil {
		m.differ("%s: left out: %v", name, err)
		return
	}
	if last.shadow {
		l.Enforce = weir.EnforceShadow
	}
	m.Records[manifest.Key{Scope: scope}] = &manifest.Record{
		Declared: admin.Declared{Limits: &admin.ScopedLimits{Scope: scope, Limits: []weir.Limit{l}}},
	}
}

// entity returns the entity of the descriptors at a path, made of the values that have a counter each, and how a
// mapping matches the path.
func (m *ratelimitManifest) entity(name string, path []*descriptor) (entity string, match []string) {
	var values []string
	seen := make(map[string]bool)
	for _, d := range path {
		match = append(match, quoted(d.text()))
		if d.rank() > 0 && (d.rank() == 2 || !d.shared) {
			if seen[d.key] {
				m.differ("%s: values of the second %s have one counter together", name, d.key)
			}
			values = append(values, valueOf(d.key))
		}
		seen[d.key] = true
	}
	if last := path[len(path)-1]; len(values) == 0 && last.rank() == 0 {
		values = []string{valueOf(last.key)}
	} else if len(values) == 0 {
		values = []string{"{domain}"}
	}
	return strings.Join(values, "/"), match
}

// valueOf returns what a mapping writes for the value of a key: of a secret, its hash.
func valueOf(key string) string {
	if envoy.IsSecret(key) {
		return "{hash(" + key + ")}"
	}
	return "{" + key + "}"
}
