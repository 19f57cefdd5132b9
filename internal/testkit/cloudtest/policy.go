package cloudtest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The values that intrinsic functions resolve to here.
const (
	tableARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/weir"
	region   = "eu-central-1"
)

// Statement is one statement of a policy.
type Statement struct {
	Effect    string
	Action    texts
	Resource  texts
	Condition map[string]map[string]texts
}

// Policy is the set of statements of a role or policy in a template.
type Policy []Statement

// PolicyOf returns the policy of a resource of a template: a managed policy, or a role with its own policies.
// Statements about anything but the table and its indexes are left out.
func PolicyOf(template Resolved, id string) (Policy, error) {
	type document struct{ Statement []Statement }
	var r struct {
		Properties struct {
			PolicyDocument document
			Policies       []struct{ PolicyDocument document }
		}
	}
	one, ok := template.Resources[id]
	if !ok {
		return nil, fmt.Errorf("no resource %s", id)
	}
	text, err := json.Marshal(one)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return nil, err
	}
	all := Policy(r.Properties.PolicyDocument.Statement)
	for _, p := range r.Properties.Policies {
		all = append(all, p.PolicyDocument.Statement...)
	}
	var own Policy
	for _, s := range all {
		if slices.ContainsFunc(s.Resource, func(r string) bool { return strings.HasPrefix(r, tableARN) }) {
			own = append(own, s)
		}
	}
	if len(own) == 0 {
		return nil, fmt.Errorf("%s says nothing of the table", id)
	}
	return own, nil
}

// Principal is the tags of a caller.
type Principal map[string]string

// Allows reports whether IAM would allow a call.
func (p Policy) Allows(who Principal, c Call) bool {
	allowed := false
	for _, s := range p {
		if !s.covers(who, c) {
			continue
		}
		if s.Effect == "Deny" {
			return false
		}
		allowed = true
	}
	return allowed
}

// Grants returns the allowed actions, as "dynamodb:Query" and, on indexes, "dynamodb:Query index". Only Query and Scan
// exist on indexes.
func (p Policy) Grants() []string {
	var all []string
	for _, s := range p {
		if s.Effect != "Allow" {
			continue
		}
		for _, a := range s.Action {
			for _, r := range s.Resource {
				if index := r != tableARN; !index || a == "dynamodb:Query" || a == "dynamodb:Scan" {
					all = append(all, grant(a, index))
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Idle returns what a policy allows and none of the calls needs: actions as [Policy.Grants] names them, and patterns of
// leading keys.
func (p Policy) Idle(who Principal, calls []Call) []string {
	var idle []string
	for _, g := range p.Grants() {
		if !slices.ContainsFunc(calls, func(c Call) bool { return c.Grant() == g }) {
			idle = append(idle, g)
		}
	}
	for _, s := range p {
		for _, pattern := range s.Condition["ForAllValues:StringLike"][leading] {
			filled, _ := who.fill(pattern)
			if s.Effect == "Allow" && !slices.ContainsFunc(calls, func(c Call) bool {
				return s.covers(who, c) && slices.ContainsFunc(c.Keys, func(k string) bool { return like(filled, k) })
			}) {
				idle = append(idle, strings.Join(s.Action, ", ")+" on "+pattern)
			}
		}
	}
	return idle
}

// Grant returns the name of a call as used by [Policy.Grants].
func (c Call) Grant() string { return grant(c.Action, c.Index != "") }

func grant(action string, index bool) string {
	if index {
		return action + " index"
	}
	return action
}

func (s *Statement) covers(who Principal, c Call) bool {
	arn := tableARN
	if c.Index != "" {
		arn += "/index/" + c.Index
	}
	if !slices.ContainsFunc(s.Action, func(a string) bool { return like(a, c.Action) }) ||
		!slices.ContainsFunc(s.Resource, func(r string) bool { return like(r, arn) }) {
		return false
	}
	for operator, keys := range s.Condition {
		for key, want := range keys {
			if !holds(operator, key, want, who, c) {
				return false
			}
		}
	}
	return true
}

const leading = "dynamodb:LeadingKeys"

// holds evaluates a condition. A key with several values, as leading keys are, must be compared by ForAllValues, which
// is true without values, or ForAnyValue, which is false without.
func holds(operator, key string, want texts, who Principal, c Call) bool {
	if key != leading {
		panic("a condition on a key that is not understood: " + key)
	}
	if operator == "Null" {
		return want[0] == fmt.Sprint(len(c.Keys) == 0)
	}
	set, compare, _ := strings.Cut(operator, ":")
	fits := func(k string) bool {
		return slices.ContainsFunc(want, func(w string) bool {
			pattern, ok := who.fill(w)
			return ok && (compare == "StringEquals" && pattern == k || compare == "StringLike" && like(pattern, k))
		})
	}
	if compare != "StringEquals" && compare != "StringLike" {
		panic("an operator that is not understood: " + operator)
	}
	switch set {
	case "ForAllValues":
		return !slices.ContainsFunc(c.Keys, func(k string) bool { return !fits(k) })
	case "ForAnyValue":
		return slices.ContainsFunc(c.Keys, fits)
	}
	panic("an operator that is not understood: " + operator)
}

var variable = regexp.MustCompile(`\$\{aws:PrincipalTag/([^}]+)\}`)

// fill substitutes the principal's tags. If a tag is missing, the condition does not hold.
func (p Principal) fill(pattern string) (string, bool) {
	ok := true
	filled := variable.ReplaceAllStringFunc(pattern, func(v string) string {
		value, has := p[variable.FindStringSubmatch(v)[1]]
		ok = ok && has
		return value
	})
	return filled, ok
}

// like matches as IAM does: * is any text, ? any character.
func like(pattern, s string) bool {
	quoted := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(`(?s)^` + quoted + `$`).MatchString(s)
}

// texts is one text or several.
type texts []string

// UnmarshalJSON reads both forms.
func (t *texts) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*t = texts{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}
