package aws

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/limits"
	"github.com/weirlimits/weir/internal/manifest"
)

// templateFlags are the flags of weir template that are not parameters of a template.
type templateFlags struct {
	templates map[string]*stack.Template
	kinds     map[string]*bool // cell, edge, gate
	format    string
	tags      []string
	from      limits.SourceFlags
	set       []string // of from
	limit     string
	headroom  int
}

// TemplateCmd returns the command weir template.
func TemplateCmd(a *kit.Run) *cobra.Command {
	f := &templateFlags{templates: make(map[string]*stack.Template), kinds: make(map[string]*bool)}
	cmd := &cobra.Command{
		Use:   "template",
		Short: "Print a template of weir on AWS, for CloudFormation or Terraform",
		Long: `Prints a template of the table and what belongs to it: functions on its stream, an archive,
policies, alarms and a dashboard. It makes no AWS calls. weir deploy creates and updates the same
resources; to use Terraform or your own pipeline instead, print the template and apply it there.
Then run weir doctor --create-table to complete the table.

The flags are parameters of the template. Those that are given become its defaults.

With --cell, it prints a cell's own resources: a Valkey and the queue that tells the cell of changes.
With --edge, it prints a safety net in front of weir: a WAF rate rule and an API Gateway usage plan,
sized above what a manifest allows. Both are best effort, for the day when everything else fails.
With --gate, it prints an AppConfig profile that says how far weir limits apply --gate may go, and
that is rolled back when an alarm is raised.`,
		Example: `  weir template --stack weir --alarm-topic arn:aws:sns:eu-central-1:123456789012:oncall > weir.yaml
  weir template --format terraform > weir.tf.json
  weir template --cell --vpc vpc-0123456789abcdef0 --subnet subnet-0123456789abcdef0 --subnet subnet-0123456789abcdef1 --client-group sg-0123456789abcdef0
  weir template --edge -f limits.yaml --limit rpm
  weir template --gate --rollback-alarm arn:aws:cloudwatch:eu-central-1:123456789012:alarm:refused`,
		Args: kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return template(a, cmd.Flags(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "cloudformation", "template `FORMAT`: cloudformation or terraform")
	flags.StringArrayVar(
		&f.tags, "tag", nil, "with --format terraform: tag for all resources, as `KEY=VALUE`; repeatable",
	)
	for _, kind := range []string{stack.Weir, stack.Cell, stack.Edge, stack.Gate} {
		t := mustLoad(kind)
		f.templates[kind] = t
		if kind == stack.Weir {
			t.Flags(flags)
			continue
		}
		of := pflag.NewFlagSet(kind, pflag.ContinueOnError)
		t.Flags(of)
		if kind == stack.Edge {
			of.StringArrayVarP(
				&f.from.Files, "file", "f", nil,
				"manifest `FILE`, folder with manifests, or - for standard input; repeatable",
			)
			of.StringArrayVar(
				&f.set, "set", nil, "set a variable that a manifest declares, as `NAME=VALUE`; repeatable",
			)
			of.StringVar(&f.limit, "limit", "rpm", "`NAME` of the limit that counts requests")
			of.IntVar(&f.headroom, "headroom", 200,
				"size of the rate rule and usage plan, in `PERCENT` of the most generous such limit, from 100")
		}
		marked(flags, of)
	}
	f.kinds[stack.Cell] = flags.Bool("cell", false, "print a cell's own resources")
	f.kinds[stack.Edge] = flags.Bool("edge", false, "print a safety net in front of weir")
	f.kinds[stack.Gate] = flags.Bool("gate", false, "print a gate for rollouts")
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

// marked adds flags that are valid only for the kind of template that their set is named after. A flag of the same name
// is shared.
func marked(to, of *pflag.FlagSet) {
	of.VisitAll(func(flag *pflag.Flag) {
		if to.Lookup(flag.Name) == nil {
			flag.Usage = "with --" + of.Name() + ": " + flag.Usage
			flag.Annotations = map[string][]string{kindOf: {of.Name()}}
			to.AddFlag(flag)
		}
	})
}

func template(a *kit.Run, flags *pflag.FlagSet, f *templateFlags) error {
	kind, err := f.kind()
	if err == nil {
		err = f.fits(flags, kind)
	}
	tags, err2 := tagsOf(f.tags)
	if err = cmp.Or(err, err2); err != nil {
		return kit.Usage(err)
	}
	t := f.templates[kind]
	values, err := t.Given(flags)
	if err != nil {
		return kit.Usage(err)
	}
	if kind == stack.Edge {
		if err := f.size(a, values); err != nil {
			return err
		}
	}
	if err := cmp.Or(t.Check(t.Full(values)), stack.CheckTags(tags)); err != nil {
		return kit.Usage(err)
	}
	var text []byte
	switch {
	case f.format == "terraform":
		text, err = t.Terraform(values, stack.AllTags(t.Full(values)["Stack"], stackVersion(), tags))
	case f.format != "cloudformation":
		err = kit.Usagef("--format %q must be cloudformation or terraform", f.format)
	case len(tags) > 0:
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
func (f *templateFlags) kind() (string, error) {
	kind := stack.Weir
	for _, of := range []string{stack.Cell, stack.Edge, stack.Gate} {
		switch {
		case !*f.kinds[of]:
		case kind != stack.Weir:
			return "", fmt.Errorf("--%s and --%s are different templates: print one at a time", kind, of)
		default:
			kind = of
		}
	}
	return kind, nil
}

// fits refuses flags that belong to another kind of template.
func (f *templateFlags) fits(flags *pflag.FlagSet, kind string) (err error) {
	flags.Visit(func(flag *pflag.Flag) {
		of := strings.Join(flag.Annotations[kindOf], "")
		switch {
		case err != nil:
		case of != "" && of != kind:
			err = fmt.Errorf("--%s needs --%s", flag.Name, of)
		case f.templates[stack.Weir].HasFlag(flag.Name) && !f.templates[kind].HasFlag(flag.Name):
			err = fmt.Errorf("--%s cannot be used with --%s", flag.Name, kind)
		}
	})
	return err
}

// size adds the sizes of a floor, from the manifests.
func (f *templateFlags) size(a *kit.Run, values stack.Values) error {
	if err := f.from.Define(f.set); err != nil {
		return err
	}
	ms, err := f.from.Read(a)
	if err != nil {
		return err
	}
	rates := ratesOf(ms, f.limit)
	if len(rates) == 0 {
		return kit.Usagef("--limit %q: the manifests declare no such limit", f.limit)
	}
	if err := stack.SizeEdge(values, rates, f.headroom); err != nil {
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

func tagsOf(texts []string) (map[string]string, error) {
	tags := make(map[string]string)
	for _, tag := range texts {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--tag %q is not KEY=VALUE", tag)
		}
		tags[key] = value
	}
	return tags, nil
}
