package cloud

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

type (
	obj  = map[string]any
	list = []any
)

// What a property may refer to. Each is spelled in its own way by CloudFormation and by Terraform.
type (
	ref string                    // a resource's name, or a parameter
	att struct{ id, name string } // an attribute of a resource
	sub string                    // a text with ${Resource}, ${Resource.Attribute} and ${AWS::Region} in it; ${!x} stands for ${x}
)

// MarshalJSON spells it as CloudFormation does.
func (r ref) MarshalJSON() ([]byte, error) { return json.Marshal(obj{"Ref": string(r)}) }

// MarshalJSON spells it as CloudFormation does.
func (a att) MarshalJSON() ([]byte, error) {
	return json.Marshal(obj{"Fn::GetAtt": list{a.id, a.name}})
}

// MarshalJSON spells it as CloudFormation does.
func (s sub) MarshalJSON() ([]byte, error) { return json.Marshal(obj{"Fn::Sub": string(s)}) }

// resource is one thing that is made.
// untagged are the types that take no tags.
var untagged = map[string]bool{
	"AWS::ApplicationAutoScaling::ScalableTarget": true, "AWS::ApplicationAutoScaling::ScalingPolicy": true,
	"AWS::CloudWatch::Dashboard": true, "AWS::IAM::ManagedPolicy": true, "AWS::S3::BucketPolicy": true,
	"AWS::EC2::SecurityGroupIngress": true, "AWS::SNS::Subscription": true, "AWS::SQS::QueuePolicy": true,
	"AWS::AppConfig::HostedConfigurationVersion": true,
}

type resource struct {
	Type                string
	DeletionPolicy      string   `json:",omitempty"`
	UpdateReplacePolicy string   `json:",omitempty"`
	DependsOn           []string `json:",omitempty"`
	Properties          obj      `json:",omitempty"`
}

type parameter struct {
	Type           string
	Description    string
	Default        string `json:",omitempty"`
	AllowedPattern string `json:",omitempty"`
}

type output struct {
	Description string
	Value       any
	Export      *export `json:",omitempty"`
}

type export struct{ Name sub }

// stack is a description of what is made.
type stack struct {
	AWSTemplateFormatVersion string
	Description              string
	Parameters               map[string]parameter `json:",omitempty"`
	Resources                map[string]*resource
	Outputs                  map[string]output

	name string
	tags map[string]string
}

func newStack(name, description string, tags map[string]string) *stack {
	return &stack{
		AWSTemplateFormatVersion: "2010-09-09", Description: description, name: name, tags: tags,
		Parameters: map[string]parameter{}, Resources: map[string]*resource{}, Outputs: map[string]output{},
	}
}

// add describes a resource, with tags unless its type takes none.
func (s *stack) add(id, typ string, properties obj) *resource {
	if !untagged[typ] {
		properties["Tags"] = s.tagList()
	}
	r := &resource{Type: typ, Properties: properties}
	s.Resources[id] = r
	return r
}

func (s *stack) tagList() list {
	var tags list
	for _, k := range slices.Sorted(maps.Keys(s.tags)) {
		tags = append(tags, obj{"Key": k, "Value": s.tags[k]})
	}
	return tags
}

// out adds an output, which exports nothing.
func (s *stack) out(name, description string, value any) {
	s.Outputs[name] = output{Description: description, Value: value}
}

// keep has a resource survive its stack.
func (r *resource) keep(yes bool) {
	r.DeletionPolicy, r.UpdateReplacePolicy = "Delete", "Delete"
	if yes {
		r.DeletionPolicy, r.UpdateReplacePolicy = "Retain", "Retain"
	}
}

// compact is v, made of maps and texts alone, in JSON, in one line and without escapes that only HTML needs.
func compact(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return string(bytes.TrimSpace(b.Bytes()))
}
