// Package aws has the commands for stacks on AWS.
package aws

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/api/storeurl"
	"github.com/weirlimits/weir/internal/aws/deploy"
	"github.com/weirlimits/weir/internal/aws/function/pack"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("aws", fields)

// Cmd returns the commands for stacks on AWS.
func Cmd(r *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use: "aws", Short: "Manage stacks on AWS: the table and everything around it",
	}, templateCmd(r), deployCmd(r), statusCmd(r), listCmd(r), upgradeCmd(r), destroyCmd(r))
}

// account selects the AWS profile and endpoint.
type account struct {
	Profile  string `json:"profile"`
	Endpoint string `json:"endpoint"`
}

// awsFlags select the AWS region and account.
type awsFlags struct {
	Region string `json:"region"`
	account
}

// stackName names a stack.
type stackName struct {
	Name string `json:"name" arg:"NAME"`
}

// stack returns the name, by default weir.
func (q *stackName) stack() string { return cmp.Or(q.Name, "weir") }

// config returns the environment's AWS configuration, with what the flags override.
func (f *awsFlags) config(ctx context.Context, a *kit.Run) (aws.Config, error) {
	d := storeurl.DynamoDB{Region: f.Region, Profile: f.Profile, Endpoint: f.Endpoint}
	if f.Endpoint != "" && !d.Local() {
		if err := a.MaySend("an AWS signature", "endpoint"); err != nil {
			return aws.Config{}, err
		}
	}
	cfg, err := d.AWS(ctx)
	if err != nil {
		return cfg, err
	}
	if f.Endpoint != "" {
		cfg.BaseEndpoint = &f.Endpoint
	}
	if cfg.Region == "" {
		return cfg, kit.Usage(errors.New("no region: give --region, or set AWS_REGION"))
	}
	return cfg, nil
}

// deployer returns a deployer for the region that the flags select.
func deployer(ctx context.Context, a *kit.Run, f *awsFlags) (*deploy.Deployer, error) {
	cfg, err := f.config(ctx, a)
	if err != nil {
		return nil, err
	}
	say := &teller{screen: a.Err, progress: term.NewProgress(a.Err)}
	return deploy.New(deploy.Config{
		Clients: deploy.Dial(cfg), Version: stackVersion(), Cost: costOf, Tell: say.tell,
		Zip: func(ctx context.Context) ([]byte, string, error) {
			say.line("code of the functions: " + pack.Source())
			return pack.Zip(ctx)
		},
		Planned: func(changes []deploy.Change) {
			if say.total = len(changes); a.Output == "table" {
				plan(a, changes)
			}
		},
	}), nil
}

// stackVersion is this weir's version, in characters that a tag allows.
func stackVersion() string { return strings.Trim(kit.Build().Version, "()") }

// deployFlags define what to deploy, besides the parameters of the template.
type deployFlags struct {
	stackName
	awsFlags

	Tags      map[string]string `json:"tag"`
	Dry       bool              `json:"dry_run"`
	TableOnly bool              `json:"table_only"`
	Replace   bool              `json:"replace"`
}

// request returns what the flags request. Settings without a flag stay as they are.
func (q *deployFlags) request(t *stack.Template, flags *pflag.FlagSet) (deploy.Request, error) {
	values, err := t.Given(flags)
	if err != nil {
		err = kit.Usage(err)
	}
	return deploy.Request{Stack: q.stack(), DryRun: q.Dry, Replace: q.Replace, Values: values, Tags: q.Tags}, err
}

// deployCmd returns the command weir aws deploy.
func deployCmd(a *kit.Run) *cobra.Command {
	t := mustLoad(stack.Weir)
	var flags *pflag.FlagSet
	cmd := kit.Func(a, kit.Spec{
		Use: "deploy [NAME]", Short: "Create or change a stack on AWS: the table and everything around it",
		Long: `Creates the stack NAME (weir by default), or changes an existing one to match the flags;
settings without a flag stay as they are. Each change is a CloudFormation change set;
--dry-run shows it and deletes it again. A change that would replace or remove the table
or the archive is refused without --replace.

The functions' package is uploaded to a bucket, which weir creates unless --code-bucket
names one. With --table-only, weir creates only the table, without a stack.`,
		Example: `  weir aws deploy --dry-run
  weir aws deploy limits --region eu-central-1 --alarm-topic arn:aws:sns:eu-central-1:123456789012:oncall
  weir aws deploy limits --memory 512
  weir aws deploy limits --monthly-budget 50
  weir aws deploy limits --table-only --deletion-protection`,
	}, func(ctx context.Context, q *deployFlags) error {
		if q.TableOnly {
			return deployTable(ctx, a, q, t, flags)
		}
		return runDeploy(ctx, a, q, t, flags)
	})
	flags = cmd.Flags()
	t.Flags(flags)
	flags.Lookup("stack").Hidden = true // the argument replaces it
	return cmd
}

func runDeploy(ctx context.Context, a *kit.Run, q *deployFlags, t *stack.Template, flags *pflag.FlagSet) error {
	d, err := deployer(ctx, a, &q.awsFlags)
	if err != nil {
		return err
	}
	req, err := q.request(t, flags)
	if err != nil {
		return err
	}
	res, err := d.Deploy(ctx, req)
	if err != nil {
		return stackError(err)
	}
	return a.Print(&res, func() { deployed(a, &res) })
}

// ofTable are the flags that apply to a table without a stack.
var ofTable = []string{"pitr-days", "deletion-protection", "kms-key", "stack"}

func deployTable(ctx context.Context, a *kit.Run, q *deployFlags, t *stack.Template, flags *pflag.FlagSet) error {
	var other string
	flags.Visit(func(f *pflag.Flag) {
		if t.HasFlag(f.Name) && !slices.Contains(ofTable, f.Name) || f.Name == "replace" {
			other = f.Name
		}
	})
	if other != "" {
		return kit.Usagef("--%s is for a stack and cannot be used with --table-only", other)
	}
	req, err := q.request(t, flags)
	if err != nil {
		return err
	}
	d, err := deployer(ctx, a, &q.awsFlags)
	if err != nil {
		return err
	}
	report, err := d.Table(ctx, req)
	if err != nil {
		return stackError(err)
	}
	view := &kit.DoctorView{Store: secret.Address("dynamodb://" + q.stack()), OK: report.OK()}
	for _, f := range report.Findings {
		view.Findings = append(view.Findings, stores.Finding(f))
	}
	if err := a.Print(view, func() { kit.Findings(a, view) }); err != nil {
		return err
	}
	if !view.OK && !q.Dry {
		return kit.Quiet(errors.New("problems found"))
	}
	return nil
}
