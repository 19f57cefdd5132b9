package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/limits"
	"github.com/weirlimits/weir/internal/manifest"
)

// templateFlags are the flags of weir aws template that are not parameters of a template.
type templateFlags struct {
	Format string            `json:"format" values:"cloudformation,terraform" default:"cloudformation"`
	Tags   map[string]string `json:"tag"`
	Cell   bool              `json:"cell"`
	Edge   bool              `json:"edge"`
	Gate   bool              `json:"gate"`
	limits.SourceFlags
	Limit    string `json:"limit" default:"rpm"`
	Headroom int    `json:"headroom" default:"200"`
}

// templates are those that weir aws template prints, with its flags.
type templates struct {
	of    map[string]*stack.Template
	flags *pflag.FlagSet
}

// templateCmd returns the command weir aws template.
func templateCmd(a *kit.Run) *cobra.Command {
	ts := &templates{of: make(map[string]*stack.Template)}
	cmd := kit.Func(a, kit.Spec{
		Use: "template", Short: "Print a template of weir on AWS, for CloudFormation or Terraform",
		Long: `Prints a template of the table and what belongs to it: functions on its stream, an archive,
policies, alarms and a dashboard. It makes no AWS calls. weir aws deploy creates and updates the same
resources; to use Terraform or your own pipeline instead, print the template and apply it there.
Then run weir doctor --create-table to complete the table.

The flags are parameters of the template. Those that are given become its defaults.

With --cell, it prints a cell's own resources: a Valkey and the queue that tells the cell of changes.
With --edge, it prints a safety net in front of weir: a WAF rate rule and an API Gateway usage plan,
sized above what a manifest allows. Both are best effort, for the day when everything else fails.
With --gate, it prints an AppConfig profile that says how far weir limits apply --gate may go, and
that is rolled back when an alarm is raised.`,
		Example: `  weir aws template --alarm-topic arn:aws:sns:eu-central-1:123456789012:oncall > stack.yaml
  weir aws template --format terraform > weir.tf.json
  weir aws template --cell --vpc vpc-0123456789abcdef0 --subnet subnet-0123456789abcdef0,subnet-0123456789abcdef1 \
    --client-group sg-0123456789abcdef0
  weir aws template --edge -f limits.yaml --limit rpm
  weir aws template --gate --rollback-alarm arn:aws:cloudwatch:eu-central-1:123456789012:alarm:refused`,
	}, func(_ context.Context, q *templateFlags) error { return ts.print(a, q) })
	ts.flags = cmd.Flags()
	for _, name := range []string{"file", "set", "limit", "headroom"} {
		mark(ts.flags.Lookup(name), stack.Edge)
	}
	for _, kind := range []string{stack.Weir, stack.Cell, stack.Edge, stack.Gate} {
		t := mustLoad(kind)
		ts.of[kind] = t
		of := pflag.NewFlagSet(kind, pflag.ContinueOnError)
		of.SortFlags = false
		t.Flags(of)
		of.VisitAll(func(flag *pflag.Flag) {
			if ts.flags.Lookup(flag.Name) != nil {
				return // templates share it
			}
			if ts.flags.AddFlag(flag); kind != stack.Weir {
				mark(flag, kind)
			}
		})
	}
	return cmd
}

// mustLoad returns a template that is part of the program.
func mustLoad(kind string) *stack.Template {
	t, err := stack.Load(kind)
	if err != nil {
		panic(err) // tests read all of them
	}
	return t
}

const kindOf = "weir_template"

// mark makes a flag valid only for one kind of template.
func mark(flag *pflag.Flag, kind string) {
	flag.Usage = "with --" + kind + ": " + flag.Usage
	flag.Annotations = map[string][]string{kindOf: {kind}}
}

func (ts *templates) print(a *kit.Run, q *templateFlags) error {
	kind, err := q.kind()
	if err == nil {
		err = ts.fit(kind)
	}
	if err != nil {
		return kit.Usage(err)
	}
	t := ts.of[kind]
	values, err := t.Given(ts.flags)
	if err != nil {
		return kit.Usage(err)
	}
	if kind == stack.Edge {
		if err := q.size(a, values); err != nil {
			return err
		}
	}
	if err := cmp.Or(t.Check(t.Full(values)), stack.CheckTags(q.Tags)); err != nil {
		return kit.Usage(err)
	}
	if kind == stack.Weir {
		values["CostExpression"] = costOf(t.Full(values))
	}
	var text []byte
	switch {
	case q.Format == "terraform":
		text, err = t.Terraform(values, stack.AllTags(t.Full(values)["Stack"], stackVersion(), q.Tags))
	case len(q.Tags) > 0:
		err = kit.Usage(errors.New("--tag: a template holds no tags: give them to the stack when you deploy it"))
	default:
		text = t.CloudFormation(values)
	}
	if err == nil {
		_, err = a.Out.W.Write(text)
	}
	return err
}

// kind returns the kind of template to print.
func (q *templateFlags) kind() (string, error) {
	kind := stack.Weir
	for _, k := range []struct {
		kind string
		on   bool
	}{{stack.Cell, q.Cell}, {stack.Edge, q.Edge}, {stack.Gate, q.Gate}} {
		switch {
		case !k.on:
		case kind != stack.Weir:
			return "", fmt.Errorf("--%s and --%s are different templates: print one at a time", kind, k.kind)
		default:
			kind = k.kind
		}
	}
	return kind, nil
}

// fit refuses flags that belong to another kind of template.
func (ts *templates) fit(kind string) (err error) {
	ts.flags.Visit(func(flag *pflag.Flag) {
		of := strings.Join(flag.Annotations[kindOf], "")
		switch {
		case err != nil:
		case of != "" && of != kind:
			err = fmt.Errorf("--%s needs --%s", flag.Name, of)
		case ts.of[stack.Weir].HasFlag(flag.Name) && !ts.of[kind].HasFlag(flag.Name):
			err = fmt.Errorf("--%s cannot be used with --%s", flag.Name, kind)
		}
	})
	return err
}

// size adds the sizes of a floor, from the manifests.
func (q *templateFlags) size(a *kit.Run, values stack.Values) error {
	ms, err := q.Read(a)
	if err != nil {
		return err
	}
	rates := ratesOf(ms, q.Limit)
	if slices.ContainsFunc(rates, func(r stack.Rate) bool { return r.Period == 0 }) {
		return kit.Usagef("--limit %q: the manifests declare it as a quota or a balance, which bounds no rate: "+
			"name a limit such as rpm:60/min", q.Limit)
	}
	if len(rates) == 0 {
		return kit.Usagef("--limit %q: the manifests declare no such limit", q.Limit)
	}
	if err := stack.SizeEdge(values, rates, q.Headroom); err != nil {
		return kit.Usage(err)
	}
	return nil
}

// ratesOf returns the rates of a limit, wherever manifests declare it.
func ratesOf(ms []*manifest.Manifest, limit string) []stack.Rate {
	var rates []stack.Rate
	add := func(limits []weir.Limit) {
		for _, l := range limits {
			if l.Name == limit {
				rates = append(rates, stack.Rate{Amount: l.Amount, Period: l.Period, Burst: cmp.Or(l.Burst, l.Amount)})
			}
		}
	}
	for _, m := range ms {
		for _, r := range m.Records {
			if r.Limits != nil {
				add(r.Limits.Limits)
			}
		}
	}
	return rates
}
