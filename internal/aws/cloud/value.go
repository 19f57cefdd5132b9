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

// The references that a property may contain. CloudFormation and Terraform spell each in their own way.
type (
	ref string                    // a resource's name, or a parameter
	att struct{ id, name string } // an attribute of a resource
	sub string                    // a text with ${Resource}, ${Resource.Attribute} and ${AWS::Region} in it; ${!x} stands for ${x}
)

// MarshalJSON encodes it in CloudFormation's form.
func (r ref) MarshalJSON() ([]byte, error) { return json.Marshal(obj{"Ref": string(r)}) }

// MarshalJSON encodes it in CloudFormation's form.
func (a att) MarshalJSON() ([]byte, error) {
	return json.Marshal(obj{"Fn::GetAtt": list{a.id, a.name}})
}

// MarshalJSON encodes it in CloudFormation's form.
func (s sub) MarshalJSON() ([]byte, error) { return json.Marshal(obj{"Fn::Sub": string(s)}) }

// resource is one resource of a stack.
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

// stack describes a set of resources.
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

// add adds a resource, with tags unless its type takes none.
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

// out adds an output, which is not exported.
func (s *stack) out(name, description string, value any) {
	s.Outputs[name] = output{Description: description, Value: value}
}

// keep makes a resource survive its stack.
func (r *resource) keep(yes bool) {
	r.DeletionPolicy, r.UpdateReplacePolicy = "Delete", "Delete"
	if yes {
		r.DeletionPolicy, r.UpdateReplacePolicy = "Retain", "Retain"
	}
}

// compact returns v as JSON on one line, without HTML escapes. v must consist of maps and texts alone.
func compact(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return string(bytes.TrimSpace(b.Bytes()))
}
