package strictyaml

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Writer writes YAML, a line at a time.
type Writer struct {
	b    bytes.Buffer
	open bool // the last line is a key without a value yet
	deep int  // depth of that line
}

// begin starts a line at depth. A key with nothing below it gets an empty mapping.
func (w *Writer) begin(depth int, key string) {
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
	w.b.WriteString(scalarText(Escape(key)))
	w.b.WriteByte(':')
}

// Bytes ends the text and returns it.
func (w *Writer) Bytes() []byte {
	w.begin(0, "")
	w.b.Truncate(bytes.LastIndexByte(w.b.Bytes(), '\n') + 1)
	return w.b.Bytes()
}

// Key writes a key. What follows at a greater depth is its value; otherwise that is an empty mapping.
func (w *Writer) Key(depth int, key string) {
	w.begin(depth, key)
	w.open = true
}

// Line writes a key and its value, as it is.
func (w *Writer) Line(depth int, key, value string) {
	w.begin(depth, key)
	w.b.WriteByte(' ')
	w.b.WriteString(value)
}

// Text writes a key and a text.
func (w *Writer) Text(depth int, key, text string) { w.Line(depth, key, scalarText(text)) }

// TextList formats a list of texts on one line.
func TextList(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = scalarText(Escape(text))
	}
	return "[" + strings.Join(all, ", ") + "]"
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
