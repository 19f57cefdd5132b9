package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// ResourceType is how CloudFormation calls a manifest.
const ResourceType = "Custom::WeirLimits"

// Template returns a CloudFormation template that declares manifests. Each is a resource whose property Manifest holds
// what its YAML does, in the same words; [FromTemplate] reads it back.
func Template(ms []*Manifest) []byte {
	var b bytes.Buffer
	b.WriteString(`AWSTemplateFormatVersion: "2010-09-09"
Description: Limits as code for weir; made by weir limits cfn-template
Parameters:
  WeirStack:
    Type: String
    Default: weir
    Description: The stack of weir, which exports the function that applies limits
Resources:
`)
	for i, m := range ms {
		name := "Limits"
		if len(ms) > 1 {
			name += strconv.Itoa(i + 1)
		}
		fmt.Fprintf(&b, `  %s:
    Type: %s
    DeletionPolicy: Delete
    UpdateReplacePolicy: Delete
    Properties:
      ServiceToken:
        Fn::ImportValue:
          Fn::Sub: ${WeirStack}-LimitsProvisionerArn
      Manifest:
`, name, ResourceType)
		for line := range bytes.Lines(m.Text()) {
			b.WriteString("        ")
			b.Write(line)
		}
	}
	return b.Bytes()
}

// FromTemplate reads the properties of a resource, as CloudFormation hands them on: numbers and truths may be text.
func FromTemplate(properties []byte) (*Manifest, error) {
	var p struct{ Manifest json.RawMessage }
	if err := json.Unmarshal(properties, &p); err != nil {
		return nil, fmt.Errorf("properties of %s: %w", ResourceType, err)
	}
	if len(bytes.TrimSpace(p.Manifest)) == 0 {
		return nil, fmt.Errorf("properties of %s: Manifest is missing", ResourceType)
	}
	ms, err := Decode([]Source{{"Manifest", p.Manifest}}, Options{Texts: true})
	if err != nil {
		return nil, err
	}
	return ms[0], nil
}
