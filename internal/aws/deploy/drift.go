package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weirlimits/weir/internal/aws/cloud"
)

// Drift returns how a stack's template differs from the one that this version of weir makes of the same parameters, by
// value, one line for each resource, output or parameter. It ignores the version in tags, which is reported separately.
func (d *Deployer) Drift(st *Stack) ([]string, error) {
	p := st.Params
	p.Version = st.Version
	ours, err := template(p)
	if err != nil {
		return nil, fmt.Errorf("this weir cannot make a template from the stack's parameters: %w", err)
	}
	var was, is map[string]map[string]any
	if err := unmarshalSections(st.Template, &was); err != nil {
		return nil, err
	}
	if err := unmarshalSections(ours, &is); err != nil {
		return nil, err
	}
	var lines []string
	for _, section := range []string{"Parameters", "Resources", "Outputs"} {
		noun := strings.ToLower(strings.TrimSuffix(section, "s"))
		names := slices.Collect(maps.Keys(was[section]))
		for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(names, maps.Keys(is[section]))))) {
			before, had := was[section][name]
			after, has := is[section][name]
			switch {
			case !had:
				lines = append(lines, noun+" "+name+" is new")
			case !has:
				lines = append(lines, noun+" "+name+" is gone")
			case !reflect.DeepEqual(before, after):
				lines = append(lines, noun+" "+name+" differs"+where(before, after))
			}
		}
	}
	return lines, nil
}

// unmarshalSections reads the sections of a template that are objects of objects.
func unmarshalSections(text []byte, to *map[string]map[string]any) error {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	*to = make(map[string]map[string]any)
	for _, section := range []string{"Parameters", "Resources", "Outputs"} {
		if len(doc[section]) == 0 {
			continue
		}
		one := make(map[string]any)
		if err := json.Unmarshal(doc[section], &one); err != nil {
			return err
		}
		(*to)[section] = one
	}
	return nil
}

// where names the properties that differ.
func where(before, after any) string {
	b, _ := before.(map[string]any)
	a, _ := after.(map[string]any)
	bp, ok := b["Properties"].(map[string]any)
	ap, ok2 := a["Properties"].(map[string]any)
	if !ok || !ok2 {
		return ""
	}
	names := slices.Collect(maps.Keys(bp))
	var differ []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(names, maps.Keys(ap))))) {
		if !reflect.DeepEqual(bp[name], ap[name]) {
			differ = append(differ, name)
		}
	}
	if len(differ) == 0 {
		return ""
	}
	return " in " + strings.Join(differ, ", ")
}

// Base returns the parameters for deploying the stack again: everything stays as it is unless changed. The functions'
// package is built anew, unless the user named one.
func (st *Stack) Base() cloud.Params {
	p := st.Params
	if p.Stack = st.Name; foreign(&p) {
		return p
	}
	if p.CodeKey = ""; strings.HasPrefix(p.CodeBucket, bucketPrefix) {
		p.CodeBucket = ""
	}
	return p
}
