package cloud

import (
	"maps"
	"strings"
)

// Params holds the parameters of a deployment of weir's table and everything around it. [Defaults] returns the
// defaults. Each field's comment names its flag.
type Params struct {
	Stack   string            // --stack: prefix of all names, including the table's
	Version string            // of weir, for the tag weir:version
	Tags    map[string]string // --tag KEY=VALUE

	// The table.
	Billing            string // --billing: on-demand or provisioned
	ReadMin, ReadMax   int    // --read-min, --read-max: units per second if provisioned, of the table and of each index
	WriteMin, WriteMax int    // --write-min, --write-max
	PITRDays           int    // --pitr-days: how far back the table can be restored to any second; 0: not at all
	DeletionProtection bool   // --deletion-protection
	KMSKey             string // --kms-key: ARN; "": the keys of DynamoDB and S3
	NoRetain           bool   // --no-retain: deleting the stack deletes table and archive

	// The functions.
	NoAggregator        bool   // --no-aggregator
	NoProvisioner       bool   // --no-provisioner
	ConfigFlow          bool   // --config-flow: a function that notifies cells of changes
	CodeBucket, CodeKey string // --code-bucket, --code-key: the object with the functions' package; "": parameters of the template
	Memory              int    // --memory: MB
	Timeout             int    // --timeout: seconds
	Concurrency         int    // --concurrency: reserved for the aggregator; 0: none
	ConfigConcurrency   int    // --config-concurrency: reserved for the function that publishes changes
	Tracing             bool   // --tracing: X-Ray
	LogDays             int    // --log-days
	Batch               int    // --batch: stream records per invocation
	BatchWindow         int    // --batch-window: seconds to wait for them
	Parallel            int    // --parallel: invocations per stream shard
	RecordAge           int    // --record-age: seconds after which a record goes to the failures

	// Retention in days; 0 means forever.
	UsageHourly, UsageDaily, UsageMonthly int  // --usage-hourly-days, --usage-daily-days, --usage-monthly-days
	AuditDays                             int  // --audit-days: of the provisioner's changes
	NoArchive                             bool // --no-archive: expired audit events are not kept
	ArchiveColdDays                       int  // --archive-cold-days: before they move to Glacier
	ArchiveDays                           int  // --archive-days: before they are deleted

	// Alarms.
	NoAlarms      bool   // --no-alarms
	NoDashboard   bool   // --no-dashboard
	AlarmTopic    string // --alarm-topic: ARN
	DurationAlarm int    // --duration-alarm: percent of the timeout
	AgeAlarm      int    // --age-alarm: seconds the stream may lag
	ReadAlarm     int    // --read-alarm: units per second over a quarter of an hour; 0: none
	WriteAlarm    int    // --write-alarm

	// IAM.
	NoIAM              bool     // --no-iam: create no roles and policies
	NoPolicies         bool     // --no-policies: create none for users of the table
	Roles              bool     // --roles: also create roles with these policies
	Trust              []string // --trust: ARNs of principals that may assume the roles
	NamespaceTag       string   // --namespace-tag: principal tag that holds the ID of its namespace
	PermissionBoundary string   // --permission-boundary: name or ARN of a policy
	RoleNameFormat     string   // --role-name-format: with one {}
	PolicyNameFormat   string   // --policy-name-format: with one {}
	AggregatorRole     string   // --aggregator-role: ARN; "": one is created
	ProvisionerRole    string   // --provisioner-role
	ConfigRole         string   // --config-role
}

// Defaults returns the default parameters of a deployment.
func Defaults() Params {
	return Params{
		Stack: "weir", Billing: OnDemand, ReadMin: 5, ReadMax: 1000, WriteMin: 5, WriteMax: 1000, PITRDays: 35,
		Memory: 256, Timeout: 60, ConfigConcurrency: 5, LogDays: 30, Batch: 1000, BatchWindow: 5, Parallel: 1, RecordAge: 21_600,
		UsageHourly: 90, UsageDaily: 730, AuditDays: 365, ArchiveColdDays: 90,
		DurationAlarm: 80, AgeAlarm: 60, ReadAlarm: 1000, WriteAlarm: 1000,
		NamespaceTag: "weir-namespace",
	}
}

// The billing modes of a table.
const (
	OnDemand    = "on-demand"
	Provisioned = "provisioned"
)

// The tags of the stack and of every resource that takes tags.
const (
	TagStack   = "weir:stack"
	TagVersion = "weir:version"
)

// AllTags returns all tags: the user's, and weir's own.
func (p *Params) AllTags() map[string]string { return allTags(p.Stack, p.Version, p.Tags) }

func allTags(stack, version string, tags map[string]string) map[string]string {
	all := map[string]string{TagStack: stack}
	if version = strings.Map(tagRune, version); version != "" {
		all[TagVersion] = version
	}
	maps.Copy(all, tags)
	return all
}

// tagRune drops characters that a tag value cannot contain.
func tagRune(r rune) rune {
	if !tagText.MatchString(string(r)) {
		return -1
	}
	return r
}
