package cloud

import (
	"bytes"
	"encoding/json"
)

// CloudFormation's size limits of a template: in a request, and as an S3 object.
const (
	MaxInline = 51_200
	MaxObject = 1_048_576
)

// Deployment is anything a template can be made of: [Params], a [Cell], an [Edge] or a [Gate].
type Deployment interface {
	// Check rejects what cannot be deployed. The error names the flag and the remedy.
	Check() error
	describe() *stack
}

// Template returns a deployment as CloudFormation, in JSON. The same deployment produces the same bytes.
//
// It is indented, unless that would make it larger than CloudFormation accepts in a request. It fails if Check does.
func Template(d Params) ([]byte, error) { return Render(&d) }

// Render is [Template] for any deployment.
func Render(d Deployment) ([]byte, error) {
	s, err := describe(d)
	if err != nil {
		return nil, err
	}
	out, err := indent(s)
	if err != nil || len(out) <= MaxInline {
		return out, err
	}
	return []byte(compact(s) + "\n"), nil
}

func describe(d Deployment) (*stack, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	return d.describe(), nil
}

func indent(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

func (p *Params) describe() *stack {
	s := newStack(p.Stack, "weir: rate limits that never admit more than they allow", p.AllTags())
	p.table(s)
	p.archive(s)
	p.code(s)
	p.aggregator(s)
	p.provisioner(s)
	p.configFlow(s)
	p.policies(s)
	p.alarms(s)
	p.dashboard(s)
	return s
}
