package cloudtest

import (
	"encoding/json"
	"strings"
)

// Matches reports whether a filter of an event source mapping admits a record: every field that the filter names must
// equal one of the listed texts or start with the text of a listed {"prefix": text}.
func Matches(pattern string, record map[string]any) (bool, error) {
	var p map[string]any
	if err := json.Unmarshal([]byte(pattern), &p); err != nil {
		return false, err
	}
	return matches(p, record), nil
}

func matches(pattern, record map[string]any) bool {
	for name, want := range pattern {
		switch want := want.(type) {
		case map[string]any:
			below, ok := record[name].(map[string]any)
			if !ok || !matches(want, below) {
				return false
			}
		case []any:
			have, ok := record[name].(string)
			if !ok || !one(want, have) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func one(of []any, have string) bool {
	for _, w := range of {
		if w == have {
			return true
		}
		if m, ok := w.(map[string]any); ok {
			if prefix, ok := m["prefix"].(string); ok && strings.HasPrefix(have, prefix) {
				return true
			}
		}
	}
	return false
}
