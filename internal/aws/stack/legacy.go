package stack

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Legacy returns the values and the tags of a stack that was deployed before templates had parameters: they are in its
// template's metadata. id is the stack's ARN. It returns nil values for any other template.
func Legacy(template map[string]any, id string) (Values, map[string]string, error) {
	metadata, _ := template["Metadata"].(map[string]any)
	note, _ := metadata["Weir"].(map[string]any)
	old, ok := note["Params"].(map[string]any)
	if !ok {
		return nil, nil, nil
	}
	t, err := Load(Weir)
	if err != nil {
		return nil, nil, err
	}
	values := make(Values)
	for _, p := range t.Parameters {
		for _, name := range []string{p.Name, strings.TrimSuffix(p.Name, "Days"), strings.TrimSuffix(p.Name, "Arn")} {
			for key, v := range old {
				if text := legacyText(v); strings.EqualFold(key, name) && (text != "" || !p.Required) {
					values[p.Name] = text
				}
			}
		}
	}
	if roles, _ := old["Roles"].(bool); !roles {
		values["Trust"] = ""
	}
	if b := values["PermissionBoundary"]; b != "" && !strings.HasPrefix(b, "arn:") {
		arn := strings.Split(id, ":")
		if len(arn) < 5 {
			return nil, nil, fmt.Errorf("the stack's id %q is not an ARN", id)
		}
		values["PermissionBoundary"] = "arn:" + arn[1] + ":iam::" + arn[4] + ":policy/" + b
	}
	for _, format := range []string{"RoleNameFormat", "PolicyNameFormat"} {
		if text, _ := old[format].(string); text != "" {
			values["NamePrefix"], values["NameSuffix"], _ = strings.Cut(text, "{}")
			break
		}
	}
	tags := make(map[string]string)
	if all, ok := old["Tags"].(map[string]any); ok {
		for k, v := range all {
			tags[k] = legacyText(v)
		}
	}
	return values, tags, nil
}

func legacyText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, legacyText(one))
		}
		return strings.Join(all, ",")
	case nil:
		return ""
	}
	text, _ := json.Marshal(v) //nolint:errchkjson // numbers and booleans always encode
	return string(text)
}
