package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

func (a *app) checkOutput() error {
	switch a.output {
	case "table", "json", "yaml":
		return nil
	}
	return fmt.Errorf("output %q must be table, json or yaml", a.output)
}

// print writes a result: v as JSON or YAML, with the same field names, or a table for people.
func (a *app) print(v any, table func()) error {
	if a.output == "table" {
		return a.buffered(table)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	if a.output == "yaml" {
		var err error
		if text, err = toYAML(text.Bytes()); err != nil {
			return err
		}
	}
	_, err := a.out.W.Write(text.Bytes())
	return err
}

// buffered writes all lines of a table at once.
func (a *app) buffered(table func()) error {
	screen := a.out.W
	b := bufio.NewWriter(screen)
	a.out.W = b
	table()
	a.out.W = screen
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
	for _, c := range n.Content {
		unstyle(c)
	}
}

// instant formats a time as RFC 3339 in UTC, for people and programs.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// seconds is a duration in JSON: seconds, rounded up to milliseconds so that a caller who waits this long has waited enough.
type seconds time.Duration

// MarshalJSON returns the duration as a number of seconds.
func (s seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(ceil(time.Duration(s), time.Millisecond).Milliseconds()) / 1000)
}

func ceil(d, unit time.Duration) time.Duration {
	if r := d.Truncate(unit); r == d {
		return r
	}
	return d.Truncate(unit) + unit
}

// span formats a duration for people to about three digits, rounded up.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
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
