// Package aws has the commands for stacks on AWS.
package aws

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/aws/deploy"
	"github.com/weirlimits/weir/internal/aws/lambdapkg"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
)

// awsFlags select the AWS region, profile and endpoint.
type awsFlags struct{ region, profile, endpoint string }

func (f *awsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.region, "region", "", "AWS `REGION` (default from the environment or the profile)")
	f.addAccount(flags)
}

func (f *awsFlags) addAccount(flags *pflag.FlagSet) {
	flags.StringVar(&f.profile, "profile", "", "`PROFILE` in the AWS configuration")
	flags.StringVar(&f.endpoint, "endpoint", "", "`URL` of an AWS emulator to use instead of AWS")
}

// config returns the environment's AWS configuration, with what the flags override.
func (f *awsFlags) config(ctx context.Context) (aws.Config, error) {
	d := stores.DynamoDB{Region: f.region, Profile: f.profile, Endpoint: f.endpoint}
	cfg, err := d.AWS(ctx)
	if err != nil {
		return cfg, err
	}
	if f.endpoint != "" {
		cfg.BaseEndpoint = &f.endpoint
	}
	if cfg.Region == "" {
		return cfg, kit.Usage(errors.New("no region: give --region, or set AWS_REGION"))
	}
	return cfg, nil
}

// deployer returns a deployer for the region that the flags select.
func deployer(ctx context.Context, a *kit.Run, f *awsFlags) (*deploy.Deployer, error) {
	cfg, err := f.config(ctx)
	if err != nil {
		return nil, err
	}
	say := &teller{screen: a.Err, progress: term.NewProgress(a.Err)}
	return deploy.New(deploy.Config{
		Clients: deploy.Dial(cfg), Version: stackVersion(), Zip: lambdapkg.Zip, Tell: say.tell,
		Planned: func(changes []deploy.Change) {
			if say.total = len(changes); a.Output == "table" {
				plan(a, changes)
			}
		},
	}), nil
}

// stackVersion is this weir's version, in characters that a tag allows.
func stackVersion() string { return strings.Trim(kit.Build().Version, "()") }

// stackArg returns the stack that the arguments name, by default weir.
func stackArg(args []string) string {
	if len(args) == 0 {
		return "weir"
	}
	return args[0]
}

type deployFlags struct {
	awsFlags

	template                *stack.Template
	name                    string // of the stack
	tags                    []string
	dry, tableOnly, replace bool
}

// request returns what the flags ask for. Settings without a flag stay as they are.
func (f *deployFlags) request(flags *pflag.FlagSet) (deploy.Request, error) {
	req := deploy.Request{Stack: f.name, DryRun: f.dry, Replace: f.replace}
	var err error
	if req.Values, err = f.template.Given(flags); err != nil {
		return req, kit.Usage(err)
	}
	if flags.Changed("tag") {
		if req.Tags, err = tagsOf(f.tags); err != nil {
			return req, kit.Usage(err)
		}
	}
	return req, nil
}

// DeployCmd returns the command weir deploy.
func DeployCmd(a *kit.Run) *cobra.Command {
	flags := deployFlags{template: mustLoad(stack.Weir)}
	cmd := &cobra.Command{
		Use:   "deploy [NAME]",
		Short: "Create or change a stack on AWS: the table and everything around it",
		Long: `Creates the stack NAME (weir by default), or changes an existing one to match the flags;
settings without a flag stay as they are. Each change is a CloudFormation change set;
--dry-run shows it and deletes it again. A change that would replace or remove the table
or the archive is refused without --replace.

The functions' package is uploaded to a bucket, which weir creates unless --code-bucket
names one. With --table-only, weir creates only the table, without a stack.`,
		Example: `  weir deploy --dry-run
  weir deploy limits --region eu-central-1 --alarm-topic arn:aws:sns:eu-central-1:123456789012:oncall
  weir deploy limits --memory 512
  weir deploy limits --table-only --deletion-protection`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.name = stackArg(args); flags.tableOnly {
				return deployTable(a, cmd, &flags)
			}
			return runDeploy(a, cmd, &flags)
		},
	}
	flags.awsFlags.add(cmd.Flags())
	flags.template.Flags(cmd.Flags())
	cmd.Flags().StringArrayVar(&flags.tags, "tag", nil, "tag for all resources, as `KEY=VALUE`; repeatable")
	hide(cmd, "stack")
	cmd.Flags().BoolVar(&flags.dry, "dry-run", false, "show what would change, without changing anything")
	cmd.Flags().BoolVar(&flags.tableOnly, "table-only", false, "create only the table, without a stack")
	cmd.Flags().BoolVar(
		&flags.replace, "replace", false, "allow the table or the archive to be removed, or replaced by an empty one",
	)
	return cmd
}

// hide hides a flag that an argument replaces.
func hide(cmd *cobra.Command, flag string) {
	f := cmd.Flags().Lookup(flag)
	f.Hidden = true
}

func runDeploy(a *kit.Run, cmd *cobra.Command, flags *deployFlags) error {
	ctx := cmd.Context()
	d, err := deployer(ctx, a, &flags.awsFlags)
	if err != nil {
		return err
	}
	req, err := flags.request(cmd.Flags())
	if err != nil {
		return err
	}
	res, err := d.Deploy(ctx, req)
	if err != nil {
		return stackError(err)
	}
	return a.Print(deployViewOf(&res, flags.dry), func() { deployed(a, &res, flags.dry) })
}

// ofTable are the flags that apply to a table without a stack.
var ofTable = []string{"pitr-days", "deletion-protection", "kms-key", "stack"}

func deployTable(a *kit.Run, cmd *cobra.Command, flags *deployFlags) error {
	var other string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if flags.template.HasFlag(f.Name) && !slices.Contains(ofTable, f.Name) || f.Name == "replace" {
			other = f.Name
		}
	})
	if other != "" {
		return kit.Usagef("--%s is for a stack and cannot be used with --table-only", other)
	}
	req, err := flags.request(cmd.Flags())
	if err != nil {
		return err
	}
	d, err := deployer(cmd.Context(), a, &flags.awsFlags)
	if err != nil {
		return err
	}
	report, err := d.Table(cmd.Context(), req)
	if err != nil {
		return stackError(err)
	}
	view := &kit.DoctorView{Store: "dynamodb://" + flags.name, OK: report.OK()}
	for _, f := range report.Findings {
		view.Findings = append(view.Findings, stores.Finding(f))
	}
	if err := a.Print(view, func() { kit.Findings(a, view) }); err != nil {
		return err
	}
	if !view.OK && !flags.dry {
		return kit.Quiet(errors.New("problems found"))
	}
	return nil
}
