package cloud

import (
	"maps"
	"strings"
)

// Params are the parameters of a deployment of weir's table and what goes with it. [Defaults] has the defaults; the flag
// of each is the field's comment.
type Params struct {
	Stack   string            // --stack: what the names of everything begin with, the table's is
	Version string            // of weir, for the tag weir:version
	Tags    map[string]string // --tag KEY=VALUE

	// The table.
	Billing            string // --billing: on-demand or provisioned
	ReadMin, ReadMax   int    // --read-min, --read-max: units per second if provisioned, of the table and of each index
	WriteMin, WriteMax int    // --write-min, --write-max
	PITRDays           int    // --pitr-days: for how long the table can be restored to any second; 0: not
	DeletionProtection bool   // --deletion-protection
	KMSKey             string // --kms-key: ARN; "": the key of DynamoDB and S3
	NoRetain           bool   // --no-retain: deleting the stack deletes table and archive

	// The functions.
	NoAggregator        bool   // --no-aggregator
	NoProvisioner       bool   // --no-provisioner
	ConfigFlow          bool   // --config-flow: a function that tells cells of changes
	CodeBucket, CodeKey string // --code-bucket, --code-key: the object that holds their package; "": parameters of the template
	Memory              int    // --memory: MB
	Timeout             int    // --timeout: seconds
	Concurrency         int    // --concurrency: reserved for the aggregator; 0: none
	ConfigConcurrency   int    // --config-concurrency: reserved for the function of changes
	Tracing             bool   // --tracing: X-Ray
	LogDays             int    // --log-days
	Batch               int    // --batch: stream records per invocation
	BatchWindow         int    // --batch-window: seconds to wait for them
	Parallel            int    // --parallel: invocations per stream shard
	RecordAge           int    // --record-age: seconds after which a record goes to the failures

	// What is kept. Days; 0: for ever.
	UsageHourly, UsageDaily, UsageMonthly int  // --usage-hourly-days, --usage-daily-days, --usage-monthly-days
	AuditDays                             int  // --audit-days: of what the provisioner changes
	NoArchive                             bool // --no-archive: audit events that expire are gone
	ArchiveColdDays                       int  // --archive-cold-days: until they move to Glacier
	ArchiveDays                           int  // --archive-days: until they are deleted

	// Alarms.
	NoAlarms      bool   // --no-alarms
	NoDashboard   bool   // --no-dashboard
	AlarmTopic    string // --alarm-topic: ARN
	DurationAlarm int    // --duration-alarm: percent of the timeout
	AgeAlarm      int    // --age-alarm: seconds that the stream may be behind
	ReadAlarm     int    // --read-alarm: units per second over a quarter of an hour; 0: none
	WriteAlarm    int    // --write-alarm

	// IAM.
	NoIAM              bool     // --no-iam: no roles and policies are made
	NoPolicies         bool     // --no-policies: none for those who use the table
	Roles              bool     // --roles: also roles that have them
	Trust              []string // --trust: ARNs of who may assume these
	NamespaceTag       string   // --namespace-tag: the principal's tag that holds the id of its namespace
	PermissionBoundary string   // --permission-boundary: name or ARN of a policy
	RoleNameFormat     string   // --role-name-format: with one {}
	PolicyNameFormat   string   // --policy-name-format: with one {}
	AggregatorRole     string   // --aggregator-role: ARN; "": one is made
	ProvisionerRole    string   // --provisioner-role
	ConfigRole         string   // --config-role
}

// Defaults returns the parameters of a deployment of which nothing is said.
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

// The tags of everything that takes tags, and of the stack.
const (
	TagStack   = "weir:stack"
	TagVersion = "weir:version"
)

// AllTags returns the tags of everything: those that were asked for, and weir's own.
func (p *Params) AllTags() map[string]string { return allTags(p.Stack, p.Version, p.Tags) }

func allTags(stack, version string, tags map[string]string) map[string]string {
	all := map[string]string{TagStack: stack}
	if version = strings.Map(tagRune, version); version != "" {
		all[TagVersion] = version
	}
	maps.Copy(all, tags)
	return all
}

// tagRune leaves out what the value of a tag cannot have.
func tagRune(r rune) rune {
	if !tagText.MatchString(string(r)) {
		return -1
	}
	return r
}
