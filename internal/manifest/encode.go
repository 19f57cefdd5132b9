package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Text returns the manifest as canonical YAML: sorted, each limit in its shortest form. Manifests that declare the
// same have the same text.
func (m *Manifest) Text() []byte {
	w := &writer{}
	w.text(0, "namespace", strictyaml.Escape(m.Namespace))
	if m.Name != DefaultName {
		w.text(0, "manifest", strictyaml.Escape(m.Name))
	}
	section, entity, within := "", "", false // within: inside the resources of the entity
	for _, k := range keysOf(m.Records) {
		r := m.Records[k]
		if name := k.kind().section; name != section {
			section = name
			w.key(0, section)
		}
		depth := 1
		switch {
		case k.Entity != "":
			if k.Entity != entity {
				entity, within = k.Entity, false
				w.key(1, entity)
			}
			depth = 2
		case k.Resource != "":
			w.key(1, k.Resource)
			depth = 2
		}
		if k.Entity != "" && !k.Own {
			if !within {
				within = true
				own, nothing := m.Records[entityKey(entity)], &admin.Declared{Entity: &admin.Entity{}}
				if own != nil && len(kinds.entity.fields(nothing, &own.Declared)) == 0 {
					w.line(2, "cascade", "false") // so that it is declared
				}
				w.key(2, "resources")
			}
			w.key(3, cmp.Or(k.Resource, weir.DefaultResource))
			depth = 4
		}
		w.record(depth, k.kind().members, &r.Declared)
	}
	w.end()
	return w.b.Bytes()
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

// record writes the members of a record: values, then blocks.
func (w *writer) record(depth int, members []member, r *admin.Declared) {
	for _, block := range []bool{false, true} {
		for _, m := range members {
			if m.block == block {
				m.encode(w, depth, r)
			}
		}
	}
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
	}{
		{24 * time.Hour, "d"},
		{time.Hour, "h"},
		{time.Minute, "m"},
		{time.Second, "s"},
		{time.Millisecond, "ms"},
		{time.Microsecond, "us"},
	} {
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
