package manifest

import (
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Text returns the manifest as canonical YAML: sorted, each limit in its shortest form. Manifests that declare the
// same have the same text.
func (m *Manifest) Text() []byte {
	w := &strictyaml.Writer{}
	w.Text(0, "namespace", strictyaml.Escape(m.Namespace))
	if m.Name != DefaultName {
		w.Text(0, "manifest", strictyaml.Escape(m.Name))
	}
	if len(m.Moved) > 0 {
		w.Key(0, "moved")
		w.Line(1, "from", strictyaml.TextList(m.Moved))
	}
	if m.Keep {
		w.Line(0, "removed", "keep")
	}
	section, owner, mapping := "", "", "" // mapping: that of the owner in which the last record is
	for _, k := range keysOf(m.Records) {
		r := m.Records[k]
		if name := k.kind().section; name != section {
			section, owner = name, ""
			w.Key(0, section)
		}
		depth := 1
		switch id := k.Entity + k.Plan; {
		case id != "":
			if id != owner {
				owner, mapping = id, ""
				w.Key(1, id)
			}
			if depth = 2; !k.Own {
				depth, mapping = m.inside(w, k, mapping)
			}
		default:
			if _, name := within(k.Resource); k.Resource != "" && name != "" {
				w.Key(1, name)
				depth = 2
			}
		}
		encode(w, depth, k.kind().members, &r.Declared)
	}
	return w.Bytes()
}

// inside writes the keys of limits of an entity or a plan, of which the last record is in a mapping, and returns their
// depth and mapping.
func (m *Manifest) inside(w *strictyaml.Writer, k Key, mapping string) (depth int, now string) {
	if k.isPlan() {
		if l := m.Records[k].Limits; len(l.Limits)+len(l.Bounded) > 0 || l.OnUnavailable != "" {
			w.Key(2, "default")
		}
		return 3, mapping
	}
	if mapping == "" && k.Entity != "" {
		own, nothing := m.Records[entityKey(k.Entity)], &admin.Declared{Entity: &admin.Entity{}}
		if own != nil && len(kinds.entity.fields(nothing, &own.Declared)) == 0 {
			w.Line(2, "cascade", "false") // so that it is declared
		}
	}
	now, name := within(k.Resource)
	if now != mapping {
		w.Key(2, now)
	}
	if name == "" {
		return 3, now
	}
	w.Key(3, name)
	return 4, now
}

// encode writes the members of a record: values, then blocks.
func encode(w *strictyaml.Writer, depth int, members []member, r *admin.Declared) {
	for _, block := range []bool{false, true} {
		for _, m := range members {
			if m.block == block {
				m.encode(w, depth, r)
			}
		}
	}
}
