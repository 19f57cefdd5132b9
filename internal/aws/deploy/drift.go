package deploy

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weirlimits/weir/internal/aws/stack"
)

// Drift returns how the stack's template differs from this weir's, by value, one line for each resource, output or
// parameter. The values of parameters are no part of it.
func (st *Stack) Drift() ([]string, error) {
	was, err := stack.Parse(st.Template)
	if err != nil {
		return nil, err
	}
	t, err := stack.Load(stack.Weir)
	if err != nil {
		return nil, err
	}
	if !st.stored {
		return []string{"an older weir made it, without parameters: weir aws upgrade " + st.Name + " replaces it"}, nil
	}
	is, err := stack.Parse(t.CloudFormation(nil))
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, section := range []string{"Parameters", "Conditions", "Resources", "Outputs"} {
		noun := strings.ToLower(strings.TrimSuffix(section, "s"))
		before, _ := was[section].(map[string]any)
		after, _ := is[section].(map[string]any)
		for _, name := range names(before, after) {
			b, had := before[name]
			a, has := after[name]
			switch {
			case !had:
				lines = append(lines, noun+" "+name+" is new")
			case !has:
				lines = append(lines, noun+" "+name+" is gone")
			case !reflect.DeepEqual(b, a):
				lines = append(lines, noun+" "+name+" differs"+where(b, a))
			}
		}
	}
	return lines, nil
}

// names returns the keys of either, in order.
func names(a, b map[string]any) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
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
	var differ []string
	for _, name := range names(bp, ap) {
		if !reflect.DeepEqual(bp[name], ap[name]) {
			differ = append(differ, name)
		}
	}
	if len(differ) == 0 {
		return ""
	}
	return " in " + strings.Join(differ, ", ")
}
