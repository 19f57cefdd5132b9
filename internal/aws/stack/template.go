package stack

import (
	"bytes"
	"embed"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

//go:embed templates
var files embed.FS

// The kinds of templates.
const (
	Weir = "weir" // the table and everything around it
	Cell = "cell" // a cell's own resources
	Edge = "edge" // a floor in front of weir
	Gate = "gate" // a gate for rollouts
)

// Template is a CloudFormation template with parameters.
type Template struct {
	Kind       string
	Parameters []Parameter

	text []byte
}

// Parameter is a parameter of a template.
type Parameter struct {
	Name        string
	Type        string // String or Number
	Default     string
	Required    bool // it has no default
	Description string
	Values      []string // the allowed ones; none: any
	Least, Most float64  // of a number; both 0: any
	Pattern     string   // of each value; "": any
	Must        string   // what a value that does not match lacks, such as "must be the ARN of a key"
}

// Values are values of parameters by name. Those of a repeatable flag are joined by commas.
type Values map[string]string

// Load returns a template of weir's. It reads only the parameters, line by line, since they are flags that every start
// of the command needs; parsing a whole template takes tens of milliseconds.
func Load(kind string) (*Template, error) {
	text, err := files.ReadFile("templates/" + kind + ".yaml")
	if err != nil {
		return nil, err
	}
	t := &Template{Kind: kind, text: text}
	_, section, _ := strings.Cut(string(text), "\nParameters:\n")
	section, _, _ = strings.Cut(section, "\n\n")
	for line := range strings.Lines(section) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !strings.HasPrefix(line, "    ") {
			t.Parameters = append(t.Parameters, Parameter{Name: key, Required: true})
			continue
		}
		t.Parameters[len(t.Parameters)-1].set(key, strings.TrimSpace(value))
	}
	return t, nil
}

// set sets a property of the parameter, as it is written in YAML.
func (p *Parameter) set(key, value string) {
	switch key {
	case "Type":
		p.Type = value
	case "Default":
		p.Default, p.Required = unquoted(value), false
	case "Description":
		p.Description = unquoted(value)
	case "AllowedValues":
		for one := range strings.SplitSeq(strings.Trim(value, "[]"), ",") {
			p.Values = append(p.Values, unquoted(strings.TrimSpace(one)))
		}
	case "MinValue":
		p.Least, _ = strconv.ParseFloat(value, 64) // tests check the templates
	case "MaxValue":
		p.Most, _ = strconv.ParseFloat(value, 64)
	case "AllowedPattern":
		p.Pattern = unquoted(value)
	case "ConstraintDescription":
		p.Must = unquoted(value)
	}
}

func unquoted(value string) string {
	if text, err := strconv.Unquote(value); err == nil {
		return text
	}
	return value
}

// doc returns the whole template.
func (t *Template) doc() *yaml.Node {
	var doc yaml.Node
	if err := yaml.Unmarshal(t.text, &doc); err != nil {
		panic(err) // it is part of the program
	}
	compact(doc.Content[0])
	return doc.Content[0]
}

// compact removes the white space from JSON in folded texts.
func compact(n *yaml.Node) {
	var b bytes.Buffer
	if n.Style&yaml.FoldedStyle != 0 && json.Compact(&b, []byte(n.Value)) == nil {
		n.Value = b.String()
	}
	for _, one := range n.Content {
		compact(one)
	}
}

// Plain returns the template as [Parse] does.
func (t *Template) Plain() map[string]any { return value(t.doc()).(map[string]any) }

// Parameter returns the parameter of that name, or nil.
func (t *Template) Parameter(name string) *Parameter {
	if i := slices.IndexFunc(t.Parameters, func(p Parameter) bool { return p.Name == name }); i >= 0 {
		return &t.Parameters[i]
	}
	return nil
}

// Full returns values for all parameters: those given, and the defaults of the others that have one.
func (t *Template) Full(given Values) Values {
	all := make(Values)
	for _, p := range t.Parameters {
		if v, ok := given[p.Name]; ok || !p.Required {
			if all[p.Name] = p.Default; ok {
				all[p.Name] = v
			}
		}
	}
	return all
}

// CloudFormation returns the template in YAML, with a line for each parameter and resource, as small as possible:
// conditions have numbers as names, which only the template itself uses. Ranges of numbers, and patterns with a
// description, are left out: [Template.Check] reports what is outside, and so do the services that get it.
// The given values are the defaults of their parameters. The same values produce the same bytes.
func (t *Template) CloudFormation(given Values) []byte {
	var b []byte
	doc := t.doc()
	shorten(doc)
	for section, v := range members(doc) {
		if v.Kind == yaml.ScalarNode {
			b = append(b, section+": "+text(v)+"\n"...)
			continue
		}
		b = append(b, section+":\n"...)
		for name, one := range members(v) {
			value, ok := given[name]
			if section == "Parameters" {
				one = unchecked(one)
				if ok {
					quoted := &yaml.Node{Kind: yaml.ScalarNode, Value: value, Style: yaml.DoubleQuotedStyle}
					one = with(one, "Default", quoted)
				}
			}
			line := flow(nil, one)
			if section == "Parameters" { // the backquotes are for a flag's help
				line = bytes.ReplaceAll(line, []byte("`"), nil)
			}
			b = append(append(b, "  "+name+": "...), append(line, '\n')...)
		}
	}
	return b
}

// shorten replaces the names of conditions by numbers.
func shorten(doc *yaml.Node) {
	names := make(map[string]string)
	for section, v := range members(doc) {
		if section == "Conditions" {
			for i := 0; i+1 < len(v.Content); i += 2 {
				short := "C" + strconv.Itoa(i/2) // a letter alone may be read as a boolean
				names[v.Content[i].Value], v.Content[i].Value = short, short
			}
		}
	}
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		if function(n) == "If" {
			n.Content[0].Value = names[n.Content[0].Value]
		}
		for i, one := range n.Content {
			scalar := n.Kind == yaml.MappingNode && i%2 == 1 && one.Kind == yaml.ScalarNode
			if scalar && n.Content[i-1].Value == "Condition" {
				one.Value = names[one.Value]
			}
			walk(one)
		}
	}
	walk(doc)
}

// unchecked returns a parameter without what CloudFormation need not check.
func unchecked(p *yaml.Node) *yaml.Node {
	var drop []string
	for key, v := range members(p) {
		switch {
		case key == "ConstraintDescription":
			drop = append(drop, key, "AllowedPattern")
		case v.Value == "Number":
			drop = append(drop, "MinValue", "MaxValue", "AllowedValues")
		}
	}
	for _, key := range drop {
		p = with(p, key, nil)
	}
	return p
}

// with returns a mapping with another value of a key, or with nil without it.
func with(n *yaml.Node, key string, value *yaml.Node) *yaml.Node {
	out := *n
	out.Content = nil
	set := func(k *yaml.Node) {
		if value != nil {
			out.Content = append(out.Content, k, value)
		}
		value = nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Value == key {
			set(k)
		} else {
			out.Content = append(out.Content, k, n.Content[i+1])
		}
	}
	set(&yaml.Node{Kind: yaml.ScalarNode, Value: key})
	return &out
}

// flow appends a value on one line.
func flow(b []byte, n *yaml.Node) []byte {
	if tag := function(n); tag != "" {
		b = append(b, "!"+tag+" "...)
	}
	switch n.Kind {
	case yaml.MappingNode:
		b = append(b, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, text(n.Content[i])+": "...)
			b = flow(b, n.Content[i+1])
		}
		return append(b, '}')
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, one := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			b = flow(b, one)
		}
		return append(b, ']')
	default:
	}
	return append(b, text(n)...)
}

var plain = regexp.MustCompile(`^[A-Za-z0-9/]([A-Za-z0-9_./:@*() -]*[A-Za-z0-9_./@*()-])?$`)

// text returns a scalar as YAML takes it inside brackets.
func text(n *yaml.Node) string {
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.FoldedStyle|yaml.LiteralStyle) != 0
	switch {
	case plain.MatchString(n.Value) && !quoted && !strings.Contains(n.Value, ": "):
		return n.Value
	case strings.Contains(n.Value, `"`) && !strings.ContainsAny(n.Value, "'\n"):
		return "'" + n.Value + "'"
	}
	return strconv.Quote(n.Value)
}

// function returns the function that a node calls in its short form, such as Ref for !Ref, or "".
func function(n *yaml.Node) string {
	if strings.HasPrefix(n.Tag, "!!") {
		return ""
	}
	return strings.TrimPrefix(n.Tag, "!")
}
