package aws

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/aws/cloud"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/limits"
	"github.com/weirlimits/weir/internal/manifest"
)

// templateFlags are the flags of weir template: those of a deployment, a cell, an edge and a gate. The last three also use
// some flags of a deployment.
type templateFlags struct {
	cloudFlags

	format, limit string
	isCell        bool
	isEdge        bool
	isGate        bool
	from          limits.SourceFlags
	cell          cloud.Cell
	edge          cloud.Edge
	gate          cloud.Gate
}

// These are the flags of a deployment that a cell also uses, and those that an edge or a gate also uses.
var (
	cellShares = []string{"stack", "tag", "kms-key", "no-retain", "alarm-topic", "no-alarms"}
	edgeShares = []string{"stack", "tag"}
)

func TemplateCmd(a *kit.Run) *cobra.Command {
	f := &templateFlags{cell: cloud.CellDefaults(), edge: cloud.EdgeDefaults(), gate: cloud.GateDefaults()}
	cmd := &cobra.Command{
		Use:   "template",
		Short: "Print a template of weir on AWS, for CloudFormation or Terraform",
		Long: `Prints a template of the table and what belongs to it: functions on its stream, an archive,
policies, alarms and a dashboard. It makes no AWS calls. weir deploy creates and updates the same
resources; to use Terraform or your own pipeline instead, print the template and apply it there.
Then run weir doctor --create-table to complete the table.

With --cell, it prints a cell's own resources: a Valkey and the queue that tells the cell of changes.
With --edge, it prints a safety net in front of weir: a WAF rate rule and an API Gateway usage plan,
sized above what a manifest allows. Both are best effort, for the day when everything else fails.
With --gate, it prints an AppConfig profile that says how far weir limits apply --gate may go, and
that is rolled back when an alarm is raised.`,
		Example: `  weir template --stack weir --alarm-topic arn:aws:sns:eu-central-1:123456789012:oncall > weir.json
  weir template --format terraform > weir.tf.json
  weir template --cell --vpc vpc-0123456789abcdef0 --subnet subnet-0123456789abcdef0 --subnet subnet-0123456789abcdef1 --client-group sg-0123456789abcdef0
  weir template --edge -f limits.yaml --limit rpm
  weir template --gate --rollback-alarm arn:aws:cloudwatch:eu-central-1:123456789012:alarm:refused`,
		Args: kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return template(a, cmd.Flags(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "cloudformation", "template `FORMAT`: cloudformation or terraform")
	f.add(flags)
	marked(flags, "cell", func(of *pflag.FlagSet) {
		of.StringVar(&f.cell.VPC, "vpc", "", "`ID` of the cell's VPC")
		of.StringArrayVar(&f.cell.Subnets, "subnet", nil, "`ID` of a subnet for the cell's Valkey; repeatable")
		of.StringArrayVar(&f.cell.Clients, "client-group", nil, "`ID` of a security group of the cell's servers; repeatable")
		of.StringVar(&f.cell.NodeType, "node-type", f.cell.NodeType, "node `TYPE` of the Valkey")
		of.IntVar(&f.cell.Replicas, "replicas", f.cell.Replicas, "`N` replicas for failover, 0 to 5")
		of.StringVar(&f.cell.Topic, "topic", "", "`ARN` of the topic that announces changes: the deployment's ConfigTopicArn")
	})
	marked(flags, "edge", func(of *pflag.FlagSet) {
		of.StringArrayVarP(&f.from.Files, "file", "f", nil, "manifest `FILE`, folder with manifests, or - for standard input; repeatable")
		of.StringArrayVar(&f.from.Set, "set", nil, "set a variable that a manifest declares, as `NAME=VALUE`; repeatable")
		of.StringVar(&f.limit, "limit", "rpm", "`NAME` of the limit that counts requests")
		of.IntVar(&f.edge.Headroom, "headroom", f.edge.Headroom, "size of the rate rule and usage plan, in `PERCENT` of the most generous such limit, from 100")
		of.IntVar(&f.edge.Window, "window", f.edge.Window, "`SECONDS` over which WAF counts: 60, 120, 300 or 600")
		of.StringVar(&f.edge.Header, "header", "", "`NAME` of the header that identifies clients (default by address)")
		of.BoolVar(&f.edge.Global, "global", false, "for CloudFront instead of a region")
		of.StringVar(&f.edge.API, "api", "", "`ID` of the API that the usage plan is for")
		of.StringVar(&f.edge.Stage, "stage", "", "`NAME` of the API's stage")
		of.BoolVar(&f.edge.NoPlan, "no-plan", false, "leave out the usage plan")
	})
	marked(flags, "gate", func(of *pflag.FlagSet) {
		of.StringArrayVar(&f.gate.Alarms, "rollback-alarm", nil, "`ARN` of an alarm that rolls a version back; repeatable")
		of.IntVar(&f.gate.Bake, "gate-bake", f.gate.Bake, "`MINUTES` to watch a version after it is deployed")
	})
	flags.BoolVar(&f.isCell, "cell", false, "print a cell's own resources")
	flags.BoolVar(&f.isEdge, "edge", false, "print a safety net in front of weir")
	flags.BoolVar(&f.isGate, "gate", false, "print a gate for rollouts")
	return cmd
}

const kindOf = "weir_template"

// marked adds flags that are valid only for one kind of template.
func marked(to *pflag.FlagSet, kind string, add func(*pflag.FlagSet)) {
	of := pflag.NewFlagSet(kind, pflag.ContinueOnError)
	add(of)
	of.VisitAll(func(flag *pflag.Flag) {
		flag.Usage = "with --" + kind + ": " + flag.Usage
		flag.Annotations = map[string][]string{kindOf: {kind}}
		to.AddFlag(flag)
	})
}

func template(a *kit.Run, flags *pflag.FlagSet, f *templateFlags) error {
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
		return kit.Usagef("--format %q must be cloudformation or terraform", f.format)
	}
	text, err := render(d)
	if err != nil {
		return kit.Usage(err) // fails only for what Check refuses
	}
	_, err = a.Out.W.Write(text)
	return err
}

func (f *templateFlags) deployment(a *kit.Run, flags *pflag.FlagSet) (cloud.Deployment, error) {
	kind, shares := "", []string(nil)
	for _, of := range []struct {
		is     bool
		kind   string
		shares []string
	}{{f.isCell, "cell", cellShares}, {f.isEdge, "edge", edgeShares}, {f.isGate, "gate", edgeShares}} {
		switch {
		case of.is && kind != "":
			return nil, kit.Usagef("--%s and --%s are different templates: print one at a time", kind, of.kind)
		case of.is:
			kind, shares = of.kind, of.shares
		}
	}
	if err := fits(flags, kind, shares); err != nil {
		return nil, kit.Usage(err)
	}
	if kind == "" {
		return f.params()
	}
	tags, err := tagsOf(f.tags)
	if err != nil {
		return nil, kit.Usage(err)
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
	ms, err := f.from.Read(a)
	if err != nil {
		return nil, err
	}
	f.edge.Rates = ratesOf(ms, f.limit)
	if len(f.edge.Rates) == 0 {
		return nil, kit.Usagef("--limit %q: the manifests declare no such limit", f.limit)
	}
	return &f.edge, nil
}

// fits refuses flags that belong to another kind of template.
func fits(flags *pflag.FlagSet, kind string, shares []string) error {
	var err error
	flags.Visit(func(flag *pflag.Flag) {
		of := strings.Join(flag.Annotations[kindOf], "")
		switch {
		case err != nil, of == kind && of != "":
		case of != "":
			err = fmt.Errorf("--%s needs --%s", flag.Name, of)
		case kind != "" && deploys(flag.Name) && !slices.Contains(shares, flag.Name):
			err = fmt.Errorf("--%s cannot be used with --%s", flag.Name, kind)
		}
	})
	return err
}

// deploys reports whether a flag belongs to a deployment.
func deploys(name string) bool {
	var of cloudFlags
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	of.add(flags)
	return flags.Lookup(name) != nil
}

// ratesOf returns the rates of a limit, wherever manifests declare it.
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
