package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/weirlimits/weir/internal/aws/stack"
)

// plan is what a deployment sends to CloudFormation.
type plan struct {
	name     string
	template *stack.Template
	old      *Stack
	given    stack.Values // to set
	full     stack.Values // as they will be
	tags     map[string]string
}

// newPlan overrides the settings of a stack by those of a request, and checks the result.
func newPlan(cfg *Config, t *stack.Template, req Request, old *Stack) (*plan, error) {
	p := &plan{name: req.Stack, template: t, old: old, given: make(stack.Values)}
	if !old.stored {
		maps.Copy(p.given, old.Values)
	}
	maps.Copy(p.given, req.Values)
	p.given["Stack"] = req.Stack
	p.full = make(stack.Values)
	maps.Copy(p.full, old.Values)
	maps.Copy(p.full, p.given)
	p.full = t.Full(p.full)
	if _, given := req.Values["KeepArchive"]; !given && !req.Replace && old.Outputs["ArchiveBucket"] != "" &&
		p.full["NoAggregator"] == "true" && p.full["ConfigFlow"] != "true" {
		p.set("KeepArchive", "true") // it has what was archived
	}
	if cfg.Cost != nil {
		p.set("CostExpression", cfg.Cost(p.full))
	}
	own := req.Tags
	if own == nil {
		own = old.Tags
	}
	if err := stack.CheckTags(own); err != nil {
		return nil, err
	}
	p.tags = stack.AllTags(req.Stack, cfg.Version, own)
	return p, t.Check(p.full)
}

// set sets a parameter.
func (p *plan) set(name, value string) { p.given[name], p.full[name] = value, value }

// functions reports whether the deployment has functions.
func (p *plan) functions() bool {
	return p.full["NoAggregator"] != "true" || p.full["NoProvisioner"] != "true" || p.full["ConfigFlow"] == "true"
}

// parameters returns the parameters to send. Those that are not given stay as they are in the stack.
func (p *plan) parameters() (all []types.Parameter) {
	for _, one := range p.template.Parameters {
		v, given := p.given[one.Name]
		_, had := p.old.Values[one.Name]
		switch {
		case given:
			all = append(all, types.Parameter{ParameterKey: aws.String(one.Name), ParameterValue: aws.String(v)})
		case had && p.old.stored:
			all = append(all, types.Parameter{ParameterKey: aws.String(one.Name), UsePreviousValue: aws.Bool(true)})
		}
	}
	return all
}

// asked returns the flags that change something, to name them in a refusal.
func (p *plan) asked(values stack.Values) string {
	var flags []string
	for _, one := range p.template.Parameters {
		if v, ok := values[one.Name]; ok && v != p.template.Full(p.old.Values)[one.Name] {
			flags = append(flags, "--"+one.Flag())
		}
	}
	return cmp.Or(strings.Join(flags, ", "), "the settings that cause this")
}

func refusal(stack, flags string, c Change) error {
	verb := map[string]string{
		"replace": "be replaced by an empty one", "may replace": "perhaps be replaced by an empty one",
		"remove": "leave the stack",
	}[c.Action]
	because := ""
	if len(c.What) > 0 {
		because = ", because of " + strings.Join(c.What, ", ")
	}
	return &Error{
		Op: "deploy", Stack: stack, Resource: c.Resource + " (" + c.Type + ")",
		Err:  fmt.Errorf("would %s%s", verb, because),
		Hint: "keep " + flags + " as before, or add --replace",
	}
}
