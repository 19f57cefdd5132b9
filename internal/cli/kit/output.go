package kit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy/record"
)

func (a *Run) checkOutput() error {
	switch a.Output {
	case "table", "json", "yaml":
		return nil
	}
	return fmt.Errorf("output %q must be table, json or yaml", a.Output)
}

// Print writes a result: v as JSON or YAML, with the same field names, or a table for people.
func (a *Run) Print(v any, table func()) error {
	if a.Output == "table" {
		return a.Buffered(table)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	if a.Output == "yaml" {
		var err error
		if text, err = toYAML(text.Bytes()); err != nil {
			return err
		}
	}
	shown := record.VisibleJSON(text.Bytes())
	if a.Output == "yaml" {
		shown = record.VisibleYAML(text.Bytes())
	}
	_, err := a.Out.W.Write(shown)
	return err
}

// Buffered writes all lines of a table at once.
func (a *Run) Buffered(table func()) error {
	screen := a.Out.W
	b := bufio.NewWriter(screen)
	a.Out.W = b
	table()
	a.Out.W = screen
	return b.Flush()
}

// toYAML converts JSON to YAML in block style. JSON is valid YAML.
func toYAML(text []byte) (out bytes.Buffer, err error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return out, err
	}
	unstyle(&doc)
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return out, err
	}
	return out, enc.Close()
}

func unstyle(n *yaml.Node) {
	n.Style = 0
	switch strings.ToLower(n.Value) {
	case "y", "yes", "on", "n", "no", "off": // YAML 1.1 reads these as booleans
		n.Style = yaml.DoubleQuotedStyle
	}
	if string(record.VisibleYAML([]byte(n.Value))) != n.Value {
		n.Style = yaml.DoubleQuotedStyle // in which VisibleYAML escapes
	}
	for _, c := range n.Content {
		unstyle(c)
	}
}

// Instant formats a time as RFC 3339 in UTC, for people and programs.
func Instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func ceil(d, unit time.Duration) time.Duration {
	if r := d.Truncate(unit); r == d {
		return r
	}
	return d.Truncate(unit) + unit
}

// Span formats a duration for people to about three digits, rounded up; math.MaxInt64 is never.
func Span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d == math.MaxInt64:
		return "never"
	case d < time.Second:
		return ceil(d, time.Millisecond).String()
	case d < time.Minute:
		return ceil(d, 100*time.Millisecond).String()
	}
	text := ceil(d, time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Resets is when the next window of a quota begins, in its zone; nil for other limits. Of the windows it is the one
// that begins closest to a time, which another machine's clock may have shifted.
func Resets(w weir.Window, about time.Time) any {
	if w.Zone() == nil {
		return nil
	}
	at := clock.Nanos(about)
	from, to := w.Bounds(at)
	if at-from < to-at {
		to = from
	}
	return clock.Time(to).In(w.Zone()).Format("2006-01-02 15:04 ") + w.Zone().String()
}

// OrDash returns text, or - if there is none.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Did reports what was done, in the requested output format.
func Did(a *Run, format string, args ...any) error {
	return a.Print(map[string]string{"done": fmt.Sprintf(format, args...)}, func() {
		a.Out.Println(fmt.Sprintf(format, args...))
	})
}

// Plural formats a count: 1 error, 2 errors.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if base, ok := strings.CutSuffix(what, "y"); ok && !strings.HasSuffix(base, "a") { // a day
		return fmt.Sprintf("%d %sies", n, base)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Words splits the values of a flag that takes several, separated by commas.
func Words(texts []string) []string {
	if len(texts) == 0 {
		return nil
	}
	return strings.Split(strings.Join(texts, ","), ",")
}
