package serve

import (
	"reflect"
	"testing"
)

// TestParts: every part of a server is opened and started, and has its flags in the help.
func TestParts(t *testing.T) {
	t.Parallel()
	p := new(parts)
	flags, titles := p.flags()
	if len(titles) != len(flags) {
		t.Fatalf("%d titles for %d parts", len(titles), len(flags))
	}
	for name, all := range map[string][]any{"list": p.list(), "flags": flags} {
		found := make(map[uintptr]bool)
		for _, part := range all {
			found[reflect.ValueOf(part).Pointer()] = true
		}
		v := reflect.ValueOf(p).Elem()
		for i := range v.NumField() {
			if !found[v.Field(i).Addr().Pointer()] {
				t.Errorf("%s lacks %s", name, v.Type().Field(i).Name)
			}
		}
	}
}
