package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/cloud"
)

// cloudFlags are the parameters of a deployment on AWS, as flags. Their names are in internal/cloud, too, whose errors
// name them.
type cloudFlags struct {
	cloud.Params

	tags []string
}

// add declares the flags, with the defaults of a deployment.
func (f *cloudFlags) add(flags *pflag.FlagSet) {
	f.Params = cloud.Defaults()
	f.Version = build().Version
	p := &f.Params
	flags.StringVar(&p.Stack, "stack", p.Stack, "`NAME` of the stack and the table, with which the names of all else begin")
	flags.StringArrayVar(&f.tags, "tag", nil, "`KEY=VALUE` of a tag of everything; may be repeated")

	flags.StringVar(&p.Billing, "billing", p.Billing, "`MODE` of the table: on-demand or provisioned, which follows use at 70 %")
	flags.IntVar(&p.ReadMin, "read-min", p.ReadMin, "`UNITS` per second, at least, of the table and of each index if provisioned")
	flags.IntVar(&p.ReadMax, "read-max", p.ReadMax, "`UNITS` per second, at most")
	flags.IntVar(&p.WriteMin, "write-min", p.WriteMin, "`UNITS` per second, at least")
	flags.IntVar(&p.WriteMax, "write-max", p.WriteMax, "`UNITS` per second, at most")
	flags.IntVar(&p.PITRDays, "pitr-days", p.PITRDays, "`DAYS` back to which the table can be restored; 0: none")
	flags.BoolVar(&p.DeletionProtection, "deletion-protection", false, "have DynamoDB refuse to delete the table")
	flags.StringVar(&p.KMSKey, "kms-key", "", "`ARN` of the key that table, archive and topic are encrypted with")
	flags.BoolVar(&p.NoRetain, "no-retain", false, "delete table and archive with the stack")

	flags.BoolVar(&p.NoAggregator, "no-aggregator", false, "leave out the function that meters usage and keeps audit events")
	flags.BoolVar(&p.NoProvisioner, "no-provisioner", false, "leave out the function that applies manifests")
	flags.BoolVar(&p.ConfigFlow, "config-flow", false, "add the function and the topic that tell cells of changes")
	flags.StringVar(&p.CodeBucket, "code-bucket", "", "`NAME` of the bucket that holds the functions' package")
	flags.StringVar(&p.CodeKey, "code-key", "", "`KEY` of the package in it")
	flags.IntVar(&p.Memory, "memory", p.Memory, "`MB` of each function, 128 to 3008")
	flags.IntVar(&p.Timeout, "timeout", p.Timeout, "`SECONDS` of each function, 1 to 900")
	flags.IntVar(&p.Concurrency, "concurrency", p.Concurrency, "`N` invocations reserved for the aggregator, 1 to 1000; 0: none")
	flags.IntVar(&p.ConfigConcurrency, "config-concurrency", p.ConfigConcurrency, "`N` invocations reserved for the function of changes, 1 to 1000")
	flags.BoolVar(&p.Tracing, "tracing", false, "have X-Ray trace the functions")
	flags.IntVar(&p.LogDays, "log-days", p.LogDays, "`DAYS` that logs are kept, as CloudWatch knows them")
	flags.IntVar(&p.Batch, "batch", p.Batch, "`N` stream records per invocation, 1 to 10000")
	flags.IntVar(&p.BatchWindow, "batch-window", p.BatchWindow, "`SECONDS` to wait for them, 0 to 300")
	flags.IntVar(&p.Parallel, "parallel", p.Parallel, "`N` invocations at once per stream shard, 1 to 10")
	flags.IntVar(&p.RecordAge, "record-age", p.RecordAge, "`SECONDS` after which a record is given up on, 60 to 86400")

	flags.IntVar(&p.UsageHourly, "usage-hourly-days", p.UsageHourly, "`DAYS` that hours of usage are kept; 0: for ever")
	flags.IntVar(&p.UsageDaily, "usage-daily-days", p.UsageDaily, "`DAYS` that days of usage are kept; 0: for ever")
	flags.IntVar(&p.UsageMonthly, "usage-monthly-days", p.UsageMonthly, "`DAYS` that months of usage are kept; 0: for ever")
	flags.IntVar(&p.AuditDays, "audit-days", p.AuditDays, "`DAYS` that audit events of the provisioner are in the table")
	flags.BoolVar(&p.NoArchive, "no-archive", false, "let audit events go when they expire")
	flags.IntVar(&p.ArchiveColdDays, "archive-cold-days", p.ArchiveColdDays, "`DAYS` until the archive moves to Glacier; 0: never")
	flags.IntVar(&p.ArchiveDays, "archive-days", p.ArchiveDays, "`DAYS` that the archive is kept; 0: for ever")

	flags.BoolVar(&p.NoAlarms, "no-alarms", false, "leave out the alarms")
	flags.BoolVar(&p.NoDashboard, "no-dashboard", false, "leave out the dashboard")
	flags.StringVar(&p.AlarmTopic, "alarm-topic", "", "`ARN` of the topic that every alarm tells")
	flags.IntVar(&p.DurationAlarm, "duration-alarm", p.DurationAlarm, "`PERCENT` of the timeout that a function may take, 1 to 100")
	flags.IntVar(&p.AgeAlarm, "age-alarm", p.AgeAlarm, "`SECONDS` that a function may be behind the stream")
	flags.IntVar(&p.ReadAlarm, "read-alarm", p.ReadAlarm, "`UNITS` per second, over a quarter of an hour, that may be read; 0: any")
	flags.IntVar(&p.WriteAlarm, "write-alarm", p.WriteAlarm, "`UNITS` per second, over a quarter of an hour, that may be written; 0: any")

	flags.BoolVar(&p.NoIAM, "no-iam", false, "make no roles and policies: functions have roles of yours")
	flags.BoolVar(&p.NoPolicies, "no-policies", false, "make no policies for those who use the table")
	flags.BoolVar(&p.Roles, "roles", false, "also make roles that have them")
	flags.StringArrayVar(&p.Trust, "trust", nil, "`ARN` of who may assume these roles; may be repeated")
	flags.StringVar(&p.NamespaceTag, "namespace-tag", p.NamespaceTag, "`KEY` of the principal's tag that holds its namespace's id")
	flags.StringVar(&p.PermissionBoundary, "permission-boundary", "", "`POLICY` that bounds every role: its name or ARN")
	flags.StringVar(&p.RoleNameFormat, "role-name-format", "", "`FORMAT` of roles' names, with {} where weir's goes")
	flags.StringVar(&p.PolicyNameFormat, "policy-name-format", "", "`FORMAT` of policies' names, with {} where weir's goes")
	flags.StringVar(&p.AggregatorRole, "aggregator-role", "", "`ARN` of a role of yours for the aggregator")
	flags.StringVar(&p.ProvisionerRole, "provisioner-role", "", "`ARN` of a role of yours for the provisioner")
	flags.StringVar(&p.ConfigRole, "config-role", "", "`ARN` of a role of yours for the function of changes")
}

// params returns what was asked for; what cannot be is wrong usage.
func (f *cloudFlags) params() (*cloud.Params, error) {
	var err error
	if f.Tags, err = tagsOf(f.tags); err == nil {
		err = f.Check()
	}
	if err != nil {
		return nil, usageError{err}
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
