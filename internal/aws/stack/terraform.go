package stack

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
)

// escape keeps Terraform from reading a text as a template of its own.
var escape = strings.NewReplacer("${", "$${", "%{", "%%{")

// Terraform returns a module with the template as one resource, in JSON. The location of the functions' package is a
// variable unless given. The same values produce the same bytes.
func (t *Template) Terraform(given Values, tags map[string]string) ([]byte, error) {
	type object = map[string]any
	parameters, variables := object{}, object{}
	for name, v := range given {
		parameters[name] = escape.Replace(v)
	}
	for name, variable := range map[string]string{"CodeBucket": "code_bucket", "CodeKey": "code_key"} {
		if p := t.Parameter(name); p != nil && given[name] == "" {
			parameters[name] = "${var." + variable + "}"
			variables[variable] = object{"type": "string", "description": strings.ReplaceAll(p.Description, "`", "")}
		}
	}
	all := make(map[string]string)
	maps.Copy(all, tags)
	for k, v := range all {
		all[k] = escape.Replace(v)
	}
	doc := object{
		"terraform": object{"required_providers": object{"aws": object{"source": "hashicorp/aws"}}},
		"resource": object{"aws_cloudformation_stack": object{"weir": object{
			"name": t.Full(given)["Stack"], "template_body": escape.Replace(string(t.CloudFormation(nil))),
			"parameters": parameters, "capabilities": []string{"CAPABILITY_NAMED_IAM"}, "tags": all,
		}}},
		"output": object{"weir": object{"value": "${aws_cloudformation_stack.weir.outputs}"}},
	}
	if len(variables) > 0 {
		doc["variable"] = variables
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(doc)
	return b.Bytes(), err
}
