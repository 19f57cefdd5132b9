package aws

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/aws/cloud"
	"github.com/weirlimits/weir/internal/cli/kit"
)

// cloudFlags are the parameters of a deployment on AWS, as flags. internal/aws/cloud uses the same names in its errors.
type cloudFlags struct {
	cloud.Params

	tags []string
}

// add declares the flags, with the defaults of a deployment.
func (f *cloudFlags) add(flags *pflag.FlagSet) {
	f.Params = cloud.Defaults()
	f.Version = kit.Build().Version
	p := &f.Params
	flags.StringVar(&p.Stack, "stack", p.Stack, "`NAME` of the stack and the table, and prefix of all other names")
	flags.StringArrayVar(&f.tags, "tag", nil, "tag for all resources, as `KEY=VALUE`; repeatable")

	flags.StringVar(&p.Billing, "billing", p.Billing, "billing `MODE` of the table: on-demand, or provisioned with a target utilization of 70 %")
	flags.IntVar(&p.ReadMin, "read-min", p.ReadMin, "minimum read `UNITS` per second of the table and of each index, if provisioned")
	flags.IntVar(&p.ReadMax, "read-max", p.ReadMax, "maximum read `UNITS` per second")
	flags.IntVar(&p.WriteMin, "write-min", p.WriteMin, "minimum write `UNITS` per second")
	flags.IntVar(&p.WriteMax, "write-max", p.WriteMax, "maximum write `UNITS` per second")
	flags.IntVar(&p.PITRDays, "pitr-days", p.PITRDays, "`DAYS` of point-in-time recovery; 0 turns it off")
	flags.BoolVar(&p.DeletionProtection, "deletion-protection", false, "make DynamoDB refuse to delete the table")
	flags.StringVar(&p.KMSKey, "kms-key", "", "`ARN` of the KMS key that encrypts the table, archive and topic")
	flags.BoolVar(&p.NoRetain, "no-retain", false, "delete the table and archive with the stack")

	flags.BoolVar(&p.NoAggregator, "no-aggregator", false, "leave out the function that books usage and archives audit events")
	flags.BoolVar(&p.NoProvisioner, "no-provisioner", false, "leave out the function that applies manifests")
	flags.BoolVar(&p.ConfigFlow, "config-flow", false, "add the function and the topic that tell cells of changes")
	flags.StringVar(&p.CodeBucket, "code-bucket", "", "`NAME` of the bucket that holds the functions' package")
	flags.StringVar(&p.CodeKey, "code-key", "", "`KEY` of the package in that bucket")
	flags.IntVar(&p.Memory, "memory", p.Memory, "memory of each function in `MB`, 128 to 3008")
	flags.IntVar(&p.Timeout, "timeout", p.Timeout, "timeout of each function in `SECONDS`, 1 to 900")
	flags.IntVar(&p.Concurrency, "concurrency", p.Concurrency, "`N` invocations reserved for the aggregator, 1 to 1000; 0 reserves none")
	flags.IntVar(&p.ConfigConcurrency, "config-concurrency", p.ConfigConcurrency, "`N` invocations reserved for the --config-flow function, 1 to 1000")
	flags.BoolVar(&p.Tracing, "tracing", false, "trace the functions with X-Ray")
	flags.IntVar(&p.LogDays, "log-days", p.LogDays, "`DAYS` to keep logs; must be a retention that CloudWatch supports")
	flags.IntVar(&p.Batch, "batch", p.Batch, "`N` stream records per invocation, 1 to 10000")
	flags.IntVar(&p.BatchWindow, "batch-window", p.BatchWindow, "`SECONDS` to wait for a batch to fill, 0 to 300")
	flags.IntVar(&p.Parallel, "parallel", p.Parallel, "`N` concurrent invocations per stream shard, 1 to 10")
	flags.IntVar(&p.RecordAge, "record-age", p.RecordAge, "`SECONDS` after which a stream record is given up, 60 to 86400")

	flags.IntVar(&p.UsageHourly, "usage-hourly-days", p.UsageHourly, "`DAYS` to keep hours of usage; 0 keeps them forever")
	flags.IntVar(&p.UsageDaily, "usage-daily-days", p.UsageDaily, "`DAYS` to keep days of usage; 0 keeps them forever")
	flags.IntVar(&p.UsageMonthly, "usage-monthly-days", p.UsageMonthly, "`DAYS` to keep months of usage; 0 keeps them forever")
	flags.IntVar(&p.AuditDays, "audit-days", p.AuditDays, "`DAYS` to keep the provisioner's audit events in the table")
	flags.BoolVar(&p.NoArchive, "no-archive", false, "discard audit events when they expire")
	flags.IntVar(&p.ArchiveColdDays, "archive-cold-days", p.ArchiveColdDays, "`DAYS` until archived events move to Glacier; 0 means never")
	flags.IntVar(&p.ArchiveDays, "archive-days", p.ArchiveDays, "`DAYS` to keep archived events; 0 keeps them forever")

	flags.BoolVar(&p.NoAlarms, "no-alarms", false, "leave out the alarms")
	flags.BoolVar(&p.NoDashboard, "no-dashboard", false, "leave out the dashboard")
	flags.StringVar(&p.AlarmTopic, "alarm-topic", "", "`ARN` of the topic that every alarm notifies")
	flags.IntVar(&p.DurationAlarm, "duration-alarm", p.DurationAlarm, "raise an alarm if a function takes more than this `PERCENT` of its timeout, 1 to 100")
	flags.IntVar(&p.AgeAlarm, "age-alarm", p.AgeAlarm, "raise an alarm if a function is more than `SECONDS` behind the stream")
	flags.IntVar(&p.ReadAlarm, "read-alarm", p.ReadAlarm, "raise an alarm if more `UNITS` per second are read, averaged over 15 minutes; 0 turns it off")
	flags.IntVar(&p.WriteAlarm, "write-alarm", p.WriteAlarm, "raise an alarm if more `UNITS` per second are written, averaged over 15 minutes; 0 turns it off")

	flags.BoolVar(&p.NoIAM, "no-iam", false, "create no roles and policies; the functions use roles of yours")
	flags.BoolVar(&p.NoPolicies, "no-policies", false, "create no policies for users of the table")
	flags.BoolVar(&p.Roles, "roles", false, "also create roles for users of the table")
	flags.StringArrayVar(&p.Trust, "trust", nil, "`ARN` of a principal that may assume the roles of --roles; repeatable")
	flags.StringVar(&p.NamespaceTag, "namespace-tag", p.NamespaceTag, "`KEY` of the principal tag that holds the namespace's id")
	flags.StringVar(&p.PermissionBoundary, "permission-boundary", "", "permission boundary of every role: name or ARN of a `POLICY`")
	flags.StringVar(&p.RoleNameFormat, "role-name-format", "", "`FORMAT` of role names, with {} in place of weir's name")
	flags.StringVar(&p.PolicyNameFormat, "policy-name-format", "", "`FORMAT` of policy names, with {} in place of weir's name")
	flags.StringVar(&p.AggregatorRole, "aggregator-role", "", "`ARN` of your own role for the aggregator")
	flags.StringVar(&p.ProvisionerRole, "provisioner-role", "", "`ARN` of your own role for the provisioner")
	flags.StringVar(&p.ConfigRole, "config-role", "", "`ARN` of your own role for the --config-flow function")
}

// params returns the parameters of the deployment. Invalid ones are wrong usage.
func (f *cloudFlags) params() (*cloud.Params, error) {
	var err error
	if f.Tags, err = tagsOf(f.tags); err == nil {
		err = f.Check()
	}
	if err != nil {
		return nil, kit.Usage(err)
	}
	return &f.Params, nil
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
