package stack

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Parse returns a template in YAML or JSON as plain values. Functions are in their long form: !Ref X is {"Ref": "X"}.
func Parse(text []byte) (map[string]any, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("the template: %w", err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("the template is not a mapping")
	}
	return value(doc.Content[0]).(map[string]any), nil
}

func value(n *yaml.Node) any {
	name := function(n)
	v := bare(n, name != "")
	switch name {
	case "":
		return v
	case "Ref", "Condition":
		return map[string]any{name: v}
	case "GetAtt":
		if s, ok := v.(string); ok {
			id, attribute, _ := strings.Cut(s, ".")
			v = []any{id, attribute}
		}
	}
	return map[string]any{"Fn::" + name: v}
}

func bare(n *yaml.Node, isText bool) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for key, v := range members(n) {
			m[key] = value(v)
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, v := range n.Content {
			list = append(list, value(v))
		}
		return list
	default:
	}
	if isText {
		return n.Value
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return n.Value == "true"
	case "!!int", "!!float":
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return f
		}
	}
	return n.Value
}

// members returns the keys and values of a mapping, in order.
func members(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}
