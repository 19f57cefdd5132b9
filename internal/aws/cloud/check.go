package cloud

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	stackName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]{2,49}$`)
	roleARN   = regexp.MustCompile(`^arn:aws(-[a-z-]+)?:iam::\d{12}:role/.+$`)
	iamARN    = regexp.MustCompile(`^arn:aws(-[a-z-]+)?:iam::\d{12}:(root|role/.+|user/.+)$`)
	policyARN = regexp.MustCompile(`^arn:aws(-[a-z-]+)?:iam::(\d{12}|aws):policy/.+$`)
	topicARN  = regexp.MustCompile(`^arn:aws(-[a-z-]+)?:sns:[a-z0-9-]+:\d{12}:[a-zA-Z0-9_-]{1,256}$`)
	keyARN    = regexp.MustCompile(`^arn:aws(-[a-z-]+)?:kms:[a-z0-9-]+:\d{12}:key/[a-zA-Z0-9-]+$`)
	iamName   = regexp.MustCompile(`^[a-zA-Z0-9+=,.@_-]+$`)
	tagText   = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+@-]*$`)
	bucket    = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
)

// logDays are the retention periods that CloudWatch offers.
var logDays = []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}

// IAM's maximums.
const (
	maxRoleName   = 64
	maxPolicyName = 128
	maxTags       = 45 // for the user's own; weir and AWS need some
)

// Check rejects parameters that AWS would refuse, or that would not do what they appear to. The error names the flag
// and the remedy.
func (p *Params) Check() error {
	for _, check := range []func() error{
		func() error { return checkNames(p.Stack, p.Tags) },
		p.checkRanges, p.checkTable, p.checkFunctions, p.checkIAM,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func checkNames(stack string, tags map[string]string) error {
	if !stackName.MatchString(stack) {
		return fmt.Errorf("--stack %q: must be 3 to 50 letters, digits and hyphens, with a letter first", stack)
	}
	if len(tags) > maxTags {
		return fmt.Errorf("--tag: %d tags, at most %d are allowed", len(tags), maxTags)
	}
	for k, v := range tags {
		switch {
		case k == "" || len(k) > 128 || len(v) > 256:
			return fmt.Errorf("--tag %s=%s: a key has 1 to 128 characters, a value at most 256", k, v)
		case !tagText.MatchString(k) || !tagText.MatchString(v):
			return fmt.Errorf("--tag %s=%s: may contain only letters, digits, spaces and _ . : / = + - @", k, v)
		case strings.HasPrefix(strings.ToLower(k), "aws:") || strings.HasPrefix(k, "weir:"):
			return fmt.Errorf("--tag %s: aws: and weir: are reserved, use another key", k)
		}
	}
	return nil
}

func (p *Params) checkRanges() error {
	for _, r := range []struct {
		flag         string
		value        int
		least, most  int
		zero         string // the meaning of 0, if allowed
		unit, remedy string
	}{
		{"read-min", p.ReadMin, 1, 40_000, "", "units", ""},
		{"read-max", p.ReadMax, 1, 40_000, "", "units", ""},
		{"write-min", p.WriteMin, 1, 40_000, "", "units", ""},
		{"write-max", p.WriteMax, 1, 40_000, "", "units", ""},
		{"pitr-days", p.PITRDays, 1, 35, "none", "days", ""},
		{"memory", p.Memory, 128, 3008, "", "MB", ""},
		{"timeout", p.Timeout, 1, 900, "", "seconds", ""},
		{"concurrency", p.Concurrency, 1, 1000, "none", "invocations", ""},
		{"config-concurrency", p.ConfigConcurrency, 1, 1000, "", "invocations", ""},
		{"batch", p.Batch, 1, 10_000, "", "records", ""},
		{"batch-window", p.BatchWindow, 1, 300, "none", "seconds", ""},
		{"parallel", p.Parallel, 1, 10, "", "invocations", ""},
		{"record-age", p.RecordAge, 60, 86_400, "", "seconds", "a stream keeps records for a day"},
		{"usage-hourly-days", p.UsageHourly, 1, 36_500, "for ever", "days", ""},
		{"usage-daily-days", p.UsageDaily, 1, 36_500, "for ever", "days", ""},
		{"usage-monthly-days", p.UsageMonthly, 1, 36_500, "for ever", "days", ""},
		{"audit-days", p.AuditDays, 1, 36_500, "", "days", ""},
		{"archive-cold-days", p.ArchiveColdDays, 1, 3650, "never", "days", ""},
		{"archive-days", p.ArchiveDays, 1, 36_500, "for ever", "days", ""},
		{"duration-alarm", p.DurationAlarm, 1, 100, "", "percent", ""},
		{"age-alarm", p.AgeAlarm, 1, 86_400, "", "seconds", ""},
		{"read-alarm", p.ReadAlarm, 1, 1_000_000, "none", "units", ""},
		{"write-alarm", p.WriteAlarm, 1, 1_000_000, "none", "units", ""},
	} {
		if r.value >= r.least && r.value <= r.most || r.value == 0 && r.zero != "" {
			continue
		}
		text := fmt.Sprintf("--%s %d: must be from %d to %d %s", r.flag, r.value, r.least, r.most, r.unit)
		if r.zero != "" {
			text += ", or 0: " + r.zero
		}
		if r.remedy != "" {
			text += "; " + r.remedy
		}
		return fmt.Errorf("%s", text)
	}
	if !slices.Contains(logDays, p.LogDays) {
		return fmt.Errorf("--log-days %d: CloudWatch supports %s", p.LogDays, strings.Trim(fmt.Sprint(logDays), "[]"))
	}
	if p.Batch > 10 && p.BatchWindow == 0 {
		return fmt.Errorf("--batch %d: needs --batch-window, at least 1 second", p.Batch)
	}
	return nil
}

func (p *Params) checkTable() error {
	switch {
	case p.Billing != OnDemand && p.Billing != Provisioned:
		return fmt.Errorf("--billing %q: must be on-demand or provisioned", p.Billing)
	case p.ReadMin > p.ReadMax:
		return fmt.Errorf("--read-min %d: is more than --read-max %d", p.ReadMin, p.ReadMax)
	case p.WriteMin > p.WriteMax:
		return fmt.Errorf("--write-min %d: is more than --write-max %d", p.WriteMin, p.WriteMax)
	case p.KMSKey != "" && !keyARN.MatchString(p.KMSKey):
		return fmt.Errorf("--kms-key %q: must be the ARN of a key, such as arn:aws:kms:REGION:ACCOUNT:key/ID", p.KMSKey)
	case p.DeletionProtection && p.NoRetain:
		return fmt.Errorf("--deletion-protection: the stack could not be deleted with --no-retain: omit one of them")
	}
	return nil
}

func (p *Params) checkFunctions() error {
	switch {
	case (p.CodeBucket == "") != (p.CodeKey == ""):
		return fmt.Errorf("--code-bucket and --code-key must be used together")
	case p.CodeBucket != "" && !bucket.MatchString(p.CodeBucket):
		return fmt.Errorf("--code-bucket %q: is not a bucket name", p.CodeBucket)
	case p.AlarmTopic != "" && !topicARN.MatchString(p.AlarmTopic):
		return fmt.Errorf("--alarm-topic %q: must be the ARN of an SNS topic, such as arn:aws:sns:REGION:ACCOUNT:NAME", p.AlarmTopic)
	case p.AlarmTopic != "" && p.NoAlarms:
		return fmt.Errorf("--alarm-topic: there are no alarms with --no-alarms: omit one of them")
	case p.ArchiveDays != 0 && p.ArchiveDays <= p.ArchiveColdDays:
		return fmt.Errorf("--archive-days %d: must be more than --archive-cold-days %d", p.ArchiveDays, p.ArchiveColdDays)
	}
	return nil
}

func (p *Params) checkIAM() error {
	for _, r := range []struct{ flag, arn, without string }{
		{"aggregator-role", p.AggregatorRole, without(p.NoAggregator, "--no-aggregator")},
		{"provisioner-role", p.ProvisionerRole, without(p.NoProvisioner, "--no-provisioner")},
		{"config-role", p.ConfigRole, without(!p.ConfigFlow, "no --config-flow")},
	} {
		switch {
		case r.arn != "" && !roleARN.MatchString(r.arn):
			return fmt.Errorf("--%s %q: must be the ARN of a role, such as arn:aws:iam::ACCOUNT:role/NAME", r.flag, r.arn)
		case r.arn != "" && r.without != "":
			return fmt.Errorf("--%s: there is no such function with %s: omit one of them", r.flag, r.without)
		case r.arn == "" && r.without == "" && p.NoIAM:
			return fmt.Errorf("--no-iam: the function needs your own role: set --%s ARN, or omit the function", r.flag)
		}
	}
	switch {
	case p.Roles && (p.NoIAM || p.NoPolicies):
		return fmt.Errorf("--roles: cannot be made with --no-iam or --no-policies: omit one of them")
	case p.Roles && len(p.Trust) == 0:
		return fmt.Errorf("--roles: nobody could assume them: set --trust ARN")
	case !p.Roles && len(p.Trust) > 0:
		return fmt.Errorf("--trust: requires --roles")
	case p.NamespaceTag == "" || len(p.NamespaceTag) > 128 || !iamName.MatchString(p.NamespaceTag):
		return fmt.Errorf("--namespace-tag %q: must be a tag key of letters, digits and + = , . @ _ -", p.NamespaceTag)
	case p.PermissionBoundary != "" && !iamName.MatchString(p.PermissionBoundary) && !policyARN.MatchString(p.PermissionBoundary):
		return fmt.Errorf("--permission-boundary %q: must be the name or the ARN of a policy", p.PermissionBoundary)
	}
	for _, arn := range p.Trust {
		if !iamARN.MatchString(arn) {
			return fmt.Errorf("--trust %q: must be the ARN of a role, a user or an account's root", arn)
		}
	}
	if err := checkFormat("role-name-format", p.RoleNameFormat, p.longest("role"), maxRoleName); err != nil {
		return err
	}
	return checkFormat("policy-name-format", p.PolicyNameFormat, p.longest("policy"), maxPolicyName)
}

func without(is bool, flag string) string {
	if is {
		return flag
	}
	return ""
}

func checkFormat(flag, format string, longest, most int) error {
	switch {
	case format == "":
		return nil
	case strings.Count(format, "{}") != 1:
		return fmt.Errorf("--%s %q: must contain {} exactly once, where the name goes", flag, format)
	case !iamName.MatchString(strings.Replace(format, "{}", "x", 1)):
		return fmt.Errorf("--%s %q: may contain only letters, digits and + = , . @ _ -", flag, format)
	case len(format)-2+longest > most:
		return fmt.Errorf("--%s %q: makes names of %d characters, IAM allows %d", flag, format, len(format)-2+longest, most)
	}
	return nil
}
