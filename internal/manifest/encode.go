package manifest

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
)

// Text returns the manifest as canonical YAML: sorted, each limit in its shortest form. Manifests that declare the
// same have the same text.
func (m *Manifest) Text() []byte {
	w := &writer{}
	w.text(0, "namespace", escape(m.Namespace))
	if m.Name != DefaultName {
		w.text(0, "manifest", escape(m.Name))
	}
	section, entity, within := "", "", false // within: inside the resources of the entity
	for _, k := range keysOf(m.Records) {
		r := m.Records[k]
		if k == (Key{}) {
			w.key(0, "system")
			w.limits(1, r.Limits)
			continue
		}
		if name := sectionOf(k); name != section {
			section = name
			w.key(0, section)
		}
		if k.Entity == "" {
			w.key(1, k.Resource)
			w.limits(2, r.Limits)
			continue
		}
		if k.Entity != entity {
			entity, within = k.Entity, false
			w.key(1, entity)
		}
		if k.Own {
			w.entity(r.Entity)
			continue
		}
		if !within {
			within = true
			if own := m.Records[Key{Scope: weir.Scope{Entity: entity}, Own: true}]; own != nil && plain(own.Entity) {
				w.line(2, "cascade", "false") // so that it is declared
			}
			w.key(2, "resources")
		}
		name := k.Resource
		if name == "" {
			name = weir.DefaultResource
		}
		w.key(3, name)
		w.limits(4, r.Limits)
	}
	w.end()
	return w.b.Bytes()
}

func sectionOf(k Key) string {
	if k.Entity == "" {
		return "resources"
	}
	return "entities"
}

// plain reports whether an entity has no properties.
func plain(e *weir.Entity) bool {
	return e.Name == "" && e.Parent == "" && !e.Cascade && len(e.Metadata) == 0
}

// writer writes YAML, a line at a time.
type writer struct {
	b    bytes.Buffer
	open bool // the last line is a key without a value yet
	deep int  // depth of that line
}

// begin starts a line at depth. A key with nothing below it gets an empty mapping.
func (w *writer) begin(depth int, key string) {
	if w.open && depth <= w.deep {
		w.b.WriteString(" {}")
	}
	if w.b.Len() > 0 {
		w.b.WriteByte('\n')
	}
	w.open, w.deep = false, depth
	for range depth {
		w.b.WriteString("  ")
	}
	w.b.WriteString(scalarText(key))
	w.b.WriteByte(':')
}

func (w *writer) end() {
	w.begin(0, "")
	w.b.Truncate(bytes.LastIndexByte(w.b.Bytes(), '\n') + 1)
}

func (w *writer) key(depth int, key string) {
	w.begin(depth, key)
	w.open = true
}

func (w *writer) line(depth int, key, value string) {
	w.begin(depth, key)
	w.b.WriteByte(' ')
	w.b.WriteString(value)
}

func (w *writer) text(depth int, key, text string) { w.line(depth, key, scalarText(text)) }

func (w *writer) entity(e *weir.Entity) {
	if e.Name != "" {
		w.text(2, "name", escape(e.Name))
	}
	if e.Parent != "" {
		w.text(2, "parent", escape(e.Parent))
	}
	if e.Cascade {
		w.line(2, "cascade", "true")
	}
	if len(e.Metadata) > 0 {
		w.key(2, "metadata")
		for _, k := range slices.Sorted(maps.Keys(e.Metadata)) {
			w.text(3, k, escape(e.Metadata[k]))
		}
	}
}

// limits writes the limits of a scope, and the settings that go with them.
func (w *writer) limits(depth int, sl *weir.ScopedLimits) {
	if u := sl.OnUnavailable; u != "" {
		w.text(depth, "on_unavailable", string(u))
	}
	if t := sl.NearLimit; t != nil {
		w.line(depth, "near_limit", percentages(t))
	}
	if len(sl.Limits) > 0 {
		w.key(depth, "limits")
	}
	for _, l := range sl.Limits {
		w.line(depth+1, l.Name, shortest(l))
	}
}

// percentages formats thresholds as a list.
func percentages(t weir.Thresholds) string {
	if len(t) == 0 {
		return "[]"
	}
	return "[" + strings.ReplaceAll(t.String(), ",", ", ") + "]"
}

// shortest returns the shortest form of a limit. Its capacity is the amount; a different burst is written separately.
func shortest(l weir.Limit) string {
	text := "{capacity: " + strconv.FormatInt(l.Amount, 10)
	if l.Burst != l.Amount {
		text += ", burst: " + strconv.FormatInt(l.Burst, 10)
	}
	if l.Period != time.Minute {
		period := PeriodText(l.Period)
		if l.Period%time.Second == 0 {
			period = strings.TrimSuffix(period, "s")
		}
		text += ", refill_period: " + period
	}
	if l.Enforce != weir.EnforceOn {
		text += ", enforce: " + l.Enforce.String()
	}
	return text + "}"
}

// PeriodText formats a duration in one unit: 1h, 90s.
func PeriodText(d time.Duration) string {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}} {
		if d%u.length == 0 {
			return strconv.FormatInt(int64(d/u.length), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

var unquoted = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$`)

// scalarText formats text so that every YAML reader reads it as text: if it needs quotes, as JSON does.
func scalarText(text string) string {
	if unquoted.MatchString(text) {
		switch strings.ToLower(text) {
		case "y", "yes", "on", "n", "no", "off", "true", "false", "null":
		default:
			return text
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		panic(err) // text always encodes
	}
	quoted := strings.TrimSuffix(b.String(), "\n")
	return strings.NewReplacer("\x7f", `\x7f`, "\u0085", `\x85`, "\ufeff", `\ufeff`).Replace(quoted)
}
