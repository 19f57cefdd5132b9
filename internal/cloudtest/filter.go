package cloudtest

import (
	"encoding/json"
	"strings"
)

// Matches reports whether a filter of an event source mapping lets a record through: all that it names must be one of
// what it lists, a text or {"prefix": text}.
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
