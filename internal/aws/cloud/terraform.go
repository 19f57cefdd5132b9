package cloud

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Terraform returns a deployment as a Terraform module, in JSON, for a file whose name ends in .tf.json. It creates
// the same resources as [Template]. The same deployment produces the same bytes. It fails if Check does.
func Terraform(d Params) ([]byte, error) { return RenderTerraform(&d) }

// RenderTerraform is [Terraform] for any deployment.
func RenderTerraform(d Deployment) ([]byte, error) {
	s, err := describe(d)
	if err != nil {
		return nil, err
	}
	m := &module{stack: s, resources: map[string]map[string]obj{}}
	for _, id := range slices.Sorted(maps.Keys(s.Resources)) {
		if err := m.add(id, s.Resources[id]); err != nil {
			return nil, err
		}
	}
	root := obj{
		"terraform": obj{"required_version": ">= 1.5", "required_providers": obj{"aws": obj{"source": "hashicorp/aws", "version": ">= 5.86"}}},
		"resource":  m.resources,
		"output":    m.outputs(),
	}
	if data := m.data(); len(data) > 0 {
		root["data"] = data
	}
	if len(s.Parameters) > 0 {
		root["variable"] = m.variables()
	}
	return indent(root)
}

// module is a stack in Terraform's form.
type module struct {
	stack     *stack
	resources map[string]map[string]obj
	asked     map[string]bool // data sources
}

// add translates a resource, which may become several in Terraform.
func (m *module) add(id string, r *resource) error {
	to, ok := translations[r.Type]
	if !ok {
		return fmt.Errorf("%s has no translation", r.Type)
	}
	p := props{m, m.value(r.Properties).(obj)}
	body := to.body(p, id)
	if tags, ok := p.of["Tags"]; ok {
		all := obj{}
		for _, t := range tags.(list) {
			all[t.(obj)["Key"].(string)] = t.(obj)["Value"]
		}
		body["tags"] = all
	}
	if r.DeletionPolicy != "" && r.DeletionPolicy != "Delete" && to.kept {
		body["lifecycle"] = obj{"prevent_destroy": true}
	}
	m.put(to.name, snake(id), body)
	return nil
}

func (m *module) put(typ, name string, body obj) {
	if m.resources[typ] == nil {
		m.resources[typ] = map[string]obj{}
	}
	maps.DeleteFunc(body, func(_ string, v any) bool { return v == nil })
	m.resources[typ][name] = body
}

var reference = regexp.MustCompile(`\$\{(!?)([^}]*)\}`)

var literal = strings.NewReplacer("${", "$${", "%{", "%%{")

// value translates a property: its references, and any text that Terraform would mistake for a reference.
func (m *module) value(v any) any {
	switch v := v.(type) {
	case string:
		return literal.Replace(v)
	case ref:
		return m.reference(string(v))
	case att:
		return m.reference(v.id + "." + v.name)
	case sub:
		var b strings.Builder
		rest := string(v)
		for {
			at := reference.FindStringSubmatchIndex(rest)
			if at == nil {
				b.WriteString(literal.Replace(rest))
				return b.String()
			}
			b.WriteString(literal.Replace(rest[:at[0]]))
			name := rest[at[4]:at[5]]
			if at[3] > at[2] { // ${!name}
				b.WriteString("$${" + name + "}")
			} else {
				b.WriteString(m.reference(name))
			}
			rest = rest[at[1]:]
		}
	case obj:
		out := obj{}
		for k, one := range v {
			out[k] = m.value(one)
		}
		return out
	case list:
		out := list{}
		for _, one := range v {
			out = append(out, m.value(one))
		}
		return out
	}
	return v
}

// pseudo maps CloudFormation's pseudo parameters to their Terraform equivalents.
var pseudo = map[string]struct{ data, value string }{
	"AWS::Region":    {"aws_region", "${data.aws_region.current.id}"},
	"AWS::AccountId": {"aws_caller_identity", "${data.aws_caller_identity.current.account_id}"},
	"AWS::Partition": {"aws_partition", "${data.aws_partition.current.partition}"},
}

func (m *module) reference(name string) string {
	if p, ok := pseudo[name]; ok {
		if m.asked == nil {
			m.asked = map[string]bool{}
		}
		m.asked[p.data] = true
		return p.value
	}
	if _, ok := m.stack.Parameters[name]; ok {
		return "${var." + snake(name) + "}"
	}
	id, attribute, _ := strings.Cut(name, ".")
	r := m.stack.Resources[id]
	if r == nil {
		panic("a reference to nothing: " + name)
	}
	to := translations[r.Type]
	spelled, ok := to.attributes[attribute]
	if !ok {
		panic("no translation of " + name)
	}
	spelled, rest, _ := strings.Cut(spelled, "}")
	return "${" + to.name + "." + snake(id) + "." + spelled + "}" + rest
}

func (m *module) data() obj {
	out := obj{}
	for name := range m.asked {
		out[name] = obj{"current": obj{}}
	}
	return out
}

func (m *module) variables() obj {
	out := obj{}
	for name, p := range m.stack.Parameters {
		v := obj{"type": "string", "description": p.Description}
		if p.Default != "" {
			v["default"] = p.Default
		}
		out[snake(name)] = v
	}
	return out
}

func (m *module) outputs() obj {
	out := obj{}
	for name, o := range m.stack.Outputs {
		out[snake(name)] = obj{"description": o.Description, "value": m.value(o.Value)}
	}
	return out
}

// snake converts a name to Terraform's spelling: TableName to table_name, KMSKey to kms_key.
func snake(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if unicode.IsUpper(r) {
			lower := i > 0 && !unicode.IsUpper(runes[i-1])
			ends := i > 0 && i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if lower || ends {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
