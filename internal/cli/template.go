package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cloud"
	"github.com/weirlimits/weir/internal/manifest"
)

// templateFlags are those of weir template: of a deployment, of a cell, of an edge and of a gate. Each of the latter has
// some of the first, too.
type templateFlags struct {
	cloudFlags

	format, limit string
	isCell        bool
	isEdge        bool
	isGate        bool
	from          sourceFlags
	cell          cloud.Cell
	edge          cloud.Edge
	gate          cloud.Gate
}

// shared are the flags of a deployment that a cell, an edge and a gate have.
var (
	cellShares = []string{"stack", "tag", "kms-key", "no-retain", "alarm-topic", "no-alarms"}
	edgeShares = []string{"stack", "tag"}
)

func (a *app) templateCmd() *cobra.Command {
	f := &templateFlags{cell: cloud.CellDefaults(), edge: cloud.EdgeDefaults(), gate: cloud.GateDefaults()}
	cmd := &cobra.Command{
		Use:   "template",
		Short: "Print what weir has on AWS, for CloudFormation or Terraform",
		Long: `Prints a template of the table and what goes with it: functions on its stream, an
archive, policies, alarms and a dashboard. It asks AWS nothing. weir deploy makes and updates the
same; with Terraform, or a pipeline of your own, print it and apply it there. Then let weir doctor
--create-table complete the table.

With --cell, what a cell has of its own: a Valkey, and the queue by which it learns of changes.
With --edge, a floor in front of weir: a rate rule of WAF and a usage plan of API Gateway, sized above
what a manifest allows. Both are best effort, and there for the day on which nothing else stands.
With --gate, a profile of AppConfig that says how far weir limits apply --gate may go, and goes back
when an alarm is raised.`,
		Example: `  weir template --stack weir --alarm-topic arn:aws:sns:eu-central-1:123456789012:oncall > weir.json
  weir template --format terraform > weir.tf.json
  weir template --cell --vpc vpc-0123456789abcdef0 --subnet subnet-0123456789abcdef0 --subnet subnet-0123456789abcdef1 --client-group sg-0123456789abcdef0
  weir template --edge -f limits.yaml --limit rpm
  weir template --gate --rollback-alarm arn:aws:cloudwatch:eu-central-1:123456789012:alarm:refused`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.template(cmd.Flags(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "cloudformation", "`FORMAT`: cloudformation or terraform")
	f.add(flags)
	marked(flags, "cell", func(of *pflag.FlagSet) {
		of.StringVar(&f.cell.VPC, "vpc", "", "`ID` of the cell's network")
		of.StringArrayVar(&f.cell.Subnets, "subnet", nil, "`ID` of a subnet for the cell's Valkey; may be repeated")
		of.StringArrayVar(&f.cell.Clients, "client-group", nil, "`ID` of a security group of the cell's deciders; may be repeated")
		of.StringVar(&f.cell.NodeType, "node-type", f.cell.NodeType, "`TYPE` of the Valkey's nodes")
		of.IntVar(&f.cell.Replicas, "replicas", f.cell.Replicas, "`N` nodes that can take over, 0 to 5")
		of.StringVar(&f.cell.Topic, "topic", "", "`ARN` of the topic of changes, a deployment's ConfigTopicArn")
	})
	marked(flags, "edge", func(of *pflag.FlagSet) {
		of.StringArrayVarP(&f.from.files, "file", "f", nil, "`FILE` or folder with manifests, - is standard input; may be repeated")
		of.StringArrayVar(&f.from.set, "set", nil, "`NAME=VALUE` of a variable that a manifest declares; may be repeated")
		of.StringVar(&f.limit, "limit", "rpm", "`NAME` of the limit that counts requests")
		of.IntVar(&f.edge.Headroom, "headroom", f.edge.Headroom, "`PERCENT` of what the most generous such limit allows, from 100")
		of.IntVar(&f.edge.Window, "window", f.edge.Window, "`SECONDS` over which WAF counts: 60, 120, 300 or 600")
		of.StringVar(&f.edge.Header, "header", "", "`NAME` of the header by which requests are told apart; by address if none")
		of.BoolVar(&f.edge.Global, "global", false, "for CloudFront rather than a region")
		of.StringVar(&f.edge.API, "api", "", "`ID` of the API that the usage plan is for")
		of.StringVar(&f.edge.Stage, "stage", "", "`NAME` of its stage")
		of.BoolVar(&f.edge.NoPlan, "no-plan", false, "leave out the usage plan")
	})
	marked(flags, "gate", func(of *pflag.FlagSet) {
		of.StringArrayVar(&f.gate.Alarms, "rollback-alarm", nil, "`ARN` of an alarm on which a version is rolled back; may be repeated")
		of.IntVar(&f.gate.Bake, "gate-bake", f.gate.Bake, "`MINUTES` for which a version is watched once it is deployed")
	})
	flags.BoolVar(&f.isCell, "cell", false, "print what a cell has of its own")
	flags.BoolVar(&f.isEdge, "edge", false, "print a floor in front of weir")
	flags.BoolVar(&f.isGate, "gate", false, "print a gate of rollouts")
	return cmd
}

const kindOf = "weir_template"

// marked adds flags of a kind of template.
func marked(to *pflag.FlagSet, kind string, add func(*pflag.FlagSet)) {
	of := pflag.NewFlagSet(kind, pflag.ContinueOnError)
	add(of)
	of.VisitAll(func(flag *pflag.Flag) {
		flag.Usage = "with --" + kind + ": " + flag.Usage
		flag.Annotations = map[string][]string{kindOf: {kind}}
		to.AddFlag(flag)
	})
}

func (a *app) template(flags *pflag.FlagSet, f *templateFlags) error {
	d, err := f.deployment(a, flags)
	if err != nil {
		return err
	}
	render := cloud.Render
	switch f.format {
	case "cloudformation":
	case "terraform":
		render = cloud.RenderTerraform
	default:
		return usageError{fmt.Errorf("--format %q: is cloudformation or terraform", f.format)}
	}
	text, err := render(d)
	if err != nil {
		return usageError{err} // all that can fail is what Check refuses
	}
	_, err = a.out.W.Write(text)
	return err
}

func (f *templateFlags) deployment(a *app, flags *pflag.FlagSet) (cloud.Deployment, error) {
	kind, shares := "", []string(nil)
	for _, of := range []struct {
		is     bool
		kind   string
		shares []string
	}{{f.isCell, "cell", cellShares}, {f.isEdge, "edge", edgeShares}, {f.isGate, "gate", edgeShares}} {
		switch {
		case of.is && kind != "":
			return nil, usageError{fmt.Errorf("--%s and --%s are two templates: print one at a time", kind, of.kind)}
		case of.is:
			kind, shares = of.kind, of.shares
		}
	}
	if err := fits(flags, kind, shares); err != nil {
		return nil, usageError{err}
	}
	if kind == "" {
		return f.params()
	}
	tags, err := tagsOf(f.tags)
	if err != nil {
		return nil, usageError{err}
	}
	if stack := map[string]*string{"cell": &f.cell.Stack, "edge": &f.edge.Stack, "gate": &f.gate.Stack}[kind]; flags.Changed("stack") {
		*stack = f.Stack
	}
	switch kind {
	case "cell":
		c := &f.cell
		c.Version, c.Tags, c.KMSKey, c.NoRetain, c.AlarmTopic, c.NoAlarms = f.Version, tags, f.KMSKey, f.NoRetain, f.AlarmTopic, f.NoAlarms
		return c, nil
	case "gate":
		f.gate.Version, f.gate.Tags = f.Version, tags
		return &f.gate, nil
	}
	f.edge.Version, f.edge.Tags = f.Version, tags
	ms, err := f.from.read(a)
	if err != nil {
		return nil, err
	}
	f.edge.Rates = ratesOf(ms, f.limit)
	if len(f.edge.Rates) == 0 {
		return nil, usageError{fmt.Errorf("--limit %q: the manifests declare no such limit", f.limit)}
	}
	return &f.edge, nil
}

// fits refuses flags that another kind of template has.
func fits(flags *pflag.FlagSet, kind string, shares []string) error {
	var err error
	flags.Visit(func(flag *pflag.Flag) {
		of := strings.Join(flag.Annotations[kindOf], "")
		switch {
		case err != nil, of == kind && of != "":
		case of != "":
			err = fmt.Errorf("--%s goes with --%s", flag.Name, of)
		case kind != "" && deploys(flag.Name) && !slices.Contains(shares, flag.Name):
			err = fmt.Errorf("--%s does not go with --%s", flag.Name, kind)
		}
	})
	return err
}

// deploys reports whether a flag is one of a deployment's.
func deploys(name string) bool {
	var of cloudFlags
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	of.add(flags)
	return flags.Lookup(name) != nil
}

// ratesOf are the rates of a limit wherever manifests declare it.
func ratesOf(ms []*manifest.Manifest, limit string) []cloud.Rate {
	var rates []cloud.Rate
	add := func(limits []weir.Limit) {
		for _, l := range limits {
			if l.Name == limit {
				rates = append(rates, cloud.Rate{Amount: l.Amount, Period: l.Period, Burst: cmp.Or(l.Burst, l.Amount)})
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
