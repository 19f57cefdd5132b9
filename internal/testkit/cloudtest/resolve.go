package cloudtest

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// pseudo are the values of CloudFormation's own parameters.
var pseudo = map[string]string{
	"AWS::Region": region, "AWS::AccountId": "123456789012", "AWS::Partition": "aws", "AWS::StackName": "stack",
}

// none stands for AWS::NoValue: what holds it is left out.
type none struct{}

// Resolved is a template as CloudFormation sees it with certain parameters: without conditions and functions. Numbers
// and booleans are text. A reference to a resource is text too, the same for every reference to it.
type Resolved struct{ Resources, Outputs map[string]map[string]any }

// resolver resolves one template. The first mistake ends it.
type resolver struct {
	parameters map[string]map[string]any
	conditions map[string]any
	resources  map[string]map[string]any
	given      map[string]string
	err        error
}

// Resolve resolves a template, given as plain values with functions in their long form. It fails if anything refers to
// what is not there.
func Resolve(template map[string]any, given map[string]string) (Resolved, error) {
	r := &resolver{
		parameters: sections(template["Parameters"]), given: given, resources: sections(template["Resources"]),
	}
	r.conditions, _ = template["Conditions"].(map[string]any)
	out := Resolved{r.existing(r.resources), r.existing(sections(template["Outputs"]))}
	return out, r.err
}

func sections(v any) map[string]map[string]any {
	all := make(map[string]map[string]any)
	m, _ := v.(map[string]any)
	for k, one := range m {
		all[k], _ = one.(map[string]any)
	}
	return all
}

// existing resolves the entries of a section whose conditions hold.
func (r *resolver) existing(all map[string]map[string]any) map[string]map[string]any {
	out := make(map[string]map[string]any)
	for name, one := range all {
		if r.exists(one) {
			out[name], _ = r.value(one).(map[string]any)
			delete(out[name], "Condition")
		}
	}
	return out
}

func (r *resolver) exists(entry map[string]any) bool {
	name, ok := entry["Condition"].(string)
	return !ok || r.condition(name)
}

func (r *resolver) condition(name string) bool {
	v, ok := r.conditions[name]
	if !ok {
		r.fail("condition %s is not declared", name)
		return false
	}
	return r.holds(v)
}

func (r *resolver) fail(format string, args ...any) {
	r.err = errors.Join(r.err, fmt.Errorf(format, args...))
}

// holds evaluates a condition.
func (r *resolver) holds(v any) bool {
	name, arg, ok := call(v)
	list, _ := arg.([]any)
	switch {
	case ok && name == "Condition":
		return r.condition(fmt.Sprint(arg))
	case ok && name == "Fn::Equals" && len(list) == 2:
		return r.text(list[0]) == r.text(list[1])
	case ok && name == "Fn::Not" && len(list) == 1:
		return !r.holds(list[0])
	case ok && (name == "Fn::And" || name == "Fn::Or") && len(list) >= 2:
		for _, one := range list {
			if r.holds(one) == (name == "Fn::Or") {
				return name == "Fn::Or"
			}
		}
		return name == "Fn::And"
	}
	r.fail("not a condition: %v", v)
	return false
}

// call returns the function that a value calls.
func call(v any) (name string, arg any, ok bool) {
	m, isMap := v.(map[string]any)
	for name, arg = range m {
		ok = len(m) == 1 && (name == "Ref" || name == "Condition" || strings.HasPrefix(name, "Fn::"))
	}
	return name, arg, isMap && ok
}

func (r *resolver) text(v any) string {
	s, ok := r.value(v).(string)
	if !ok {
		r.fail("not text: %v", v)
	}
	return s
}

func (r *resolver) value(v any) any {
	if name, arg, ok := call(v); ok && name != "Condition" {
		return r.call(name, arg)
	}
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, one := range v {
			if got := r.value(one); got != (none{}) {
				out[k] = got
			}
		}
		return out
	case []any:
		out := []any{}
		for _, one := range v {
			if got := r.value(one); got != (none{}) {
				out = append(out, got)
			}
		}
		return out
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

func (r *resolver) call(name string, arg any) any {
	list, _ := arg.([]any)
	switch {
	case name == "Ref":
		return r.ref(fmt.Sprint(arg))
	case name == "Fn::GetAtt" && len(list) == 2:
		return r.attribute(fmt.Sprint(list[0]), fmt.Sprint(list[1]))
	case name == "Fn::Sub" && len(list) == 2:
		own, _ := list[1].(map[string]any)
		return r.sub(fmt.Sprint(list[0]), own)
	case name == "Fn::Sub":
		return r.sub(fmt.Sprint(arg), nil)
	case name == "Fn::If" && len(list) == 3:
		if r.condition(fmt.Sprint(list[0])) {
			return r.value(list[1])
		}
		return r.value(list[2])
	case name == "Fn::Join" && len(list) == 2:
		var all []string
		parts, _ := r.value(list[1]).([]any)
		for _, one := range parts {
			all = append(all, fmt.Sprint(one))
		}
		return strings.Join(all, fmt.Sprint(list[0]))
	case name == "Fn::Split" && len(list) == 2:
		return texted(strings.Split(r.text(list[1]), fmt.Sprint(list[0])))
	case name == "Fn::Select" && len(list) == 2:
		i, err := strconv.Atoi(r.text(list[0]))
		if of, _ := r.value(list[1]).([]any); err == nil && i < len(of) {
			return of[i]
		}
	}
	r.fail("%s is not understood, with %v", name, arg)
	return ""
}

func texted(all []string) []any {
	out := []any{}
	for _, one := range all {
		out = append(out, one)
	}
	return out
}

func (r *resolver) ref(name string) any {
	if name == "AWS::NoValue" {
		return none{}
	}
	if v, ok := pseudo[name]; ok {
		return v
	}
	p, ok := r.parameters[name]
	if !ok {
		r.there(name)
		return "ref:" + name
	}
	v, ok := r.given[name]
	if !ok {
		if p["Default"] == nil {
			r.fail("parameter %s has no value", name)
			return ""
		}
		v = r.text(p["Default"])
	}
	return v
}

// there fails unless a resource exists.
func (r *resolver) there(id string) {
	if one, ok := r.resources[id]; !ok || !r.exists(one) {
		r.fail("%s does not exist", id)
	}
}

func (r *resolver) attribute(id, name string) string {
	r.there(id)
	if id == "Table" && name == "Arn" {
		return tableARN
	}
	return "att:" + id + "." + name
}

var reference = regexp.MustCompile(`\$\{(!?)([^}]+)\}`)

func (r *resolver) sub(text string, own map[string]any) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		m := reference.FindStringSubmatch(found)
		id, name, dotted := strings.Cut(m[2], ".")
		switch {
		case m[1] == "!":
			return "${" + m[2] + "}"
		case own[m[2]] != nil:
			return r.text(own[m[2]])
		case dotted:
			return r.attribute(id, name)
		}
		return fmt.Sprint(r.ref(m[2]))
	})
}
