package stack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/testkit/cloudtest"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store/dynamodb"
)

const account = "123456789012"

var kinds = []string{stack.Weir, stack.Cell, stack.Edge, stack.Gate}

func role(name string) string { return "arn:aws:iam::" + account + ":role/" + name }

func alarm(name string) string {
	return "arn:aws:cloudwatch:eu-central-1:" + account + ":alarm:" + name
}

// examples are the values that a template of each kind needs.
func examples() map[string]stack.Values {
	return map[string]stack.Values{
		stack.Weir: {"CodeBucket": "code", "CodeKey": "weir/abc.zip"},
		stack.Cell: {
			"Vpc": "vpc-0123456789abcdef0", "Subnet": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
			"ClientGroup1": "sg-0123456789abcdef0",
		},
		stack.Edge: {"FloorLimit": "3900", "PlanRate": "20", "PlanBurst": "900"},
		stack.Gate: {},
	}
}

func load(t *testing.T, kind string) *stack.Template {
	t.Helper()
	tmpl, err := stack.Load(kind)
	must(t, err)
	return tmpl
}

// resolved returns a template with what it needs and more, as CloudFormation sees it.
func resolved(t *testing.T, kind string, more stack.Values) cloudtest.Resolved {
	t.Helper()
	values := examples()[kind]
	maps.Copy(values, more)
	tmpl := load(t, kind)
	must(t, tmpl.Check(tmpl.Full(values)))
	r, err := cloudtest.Resolve(tmpl.Plain(), values)
	must(t, err)
	return r
}

// TestParameters: the parameters, which are read line by line, are those of the YAML.
func TestParameters(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		tmpl := load(t, kind)
		declared := tmpl.Plain()["Parameters"].(map[string]any)
		if len(tmpl.Parameters) != len(declared) {
			t.Errorf("%s: %d parameters, want %d", kind, len(tmpl.Parameters), len(declared))
		}
		for _, p := range tmpl.Parameters {
			got := map[string]any{"Type": p.Type, "Description": p.Description}
			if !p.Required {
				got["Default"] = p.Default
			}
			if p.Most != 0 || p.Least != 0 {
				got["MinValue"] = p.Least
			}
			if p.Most != 0 {
				got["MaxValue"] = p.Most
			}
			if p.Pattern != "" {
				got["AllowedPattern"] = p.Pattern
			}
			if p.Must != "" {
				got["ConstraintDescription"] = p.Must
			}
			want := declared[p.Name].(map[string]any)
			if d, ok := want["Default"]; ok {
				want["Default"] = fmt.Sprint(d)
			}
			var values []string
			if all, ok := want["AllowedValues"].([]any); ok {
				for _, v := range all {
					values = append(values, fmt.Sprint(v))
				}
				delete(want, "AllowedValues")
			}
			if diff := cmp.Diff(want, got); diff != "" || !slices.Equal(values, p.Values) {
				t.Errorf("%s: %s: %v, want %v\n%s", kind, p.Name, p.Values, values, diff)
			}
			if v, ok := tmpl.Full(nil)[p.Name]; ok && tmpl.CheckEach(stack.Values{p.Name: v}) != nil {
				t.Errorf("%s: %s: its default %q is wrong", kind, p.Name, v)
			}
		}
	}
}

// TestFlags: every parameter but those that the program computes has a flag, and a list has one for all.
func TestFlags(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, kind := range kinds {
		load(t, kind).Flags(flags)
	}
	must(t, flags.Parse([]string{
		"--pitr-days=1", "--no-iam", "--aggregator-role", role("x"), "--trust", role("a"), "--trust", role("b"),
		"--rollback-alarm", alarm("x"), "--rollback-alarm", alarm("y"),
	}))
	got, err := load(t, stack.Weir).Given(flags)
	must(t, err)
	want := stack.Values{
		"PitrDays": "1", "NoIam": "true", "AggregatorRoleArn": role("x"), "Trust": role("a") + "," + role("b"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got, err = load(t, stack.Gate).Given(flags)
	must(t, err)
	if got["RollbackAlarm1"] != alarm("x") || got["RollbackAlarm2"] != alarm("y") || got["RollbackAlarm3"] != "" || len(got) != 5 {
		t.Errorf("gate: %v", got)
	}
	must(t, flags.Parse(slices.Repeat([]string{"--rollback-alarm", alarm("z")}, 4)))
	if _, err := load(t, stack.Gate).Given(flags); err == nil {
		t.Error("six alarms are accepted")
	}
	for _, p := range load(t, stack.Edge).Parameters {
		if computed := slices.Contains([]string{"FloorLimit", "PlanRate", "PlanBurst"}, p.Name); computed != (p.Flag() == "") {
			t.Errorf("%s has the flag %q", p.Name, p.Flag())
		}
	}
	if f := flags.Lookup("memory"); f.DefValue != "256" || f.Usage != "memory of each function in `MB`, 128 to 3008" {
		t.Errorf("--memory: %+v", f)
	}
}

// TestRender: what is printed is the template, small enough for a request, with the given values as defaults.
func TestRender(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		tmpl := load(t, kind)
		text := tmpl.CloudFormation(nil)
		if most := 51_200; len(text) > most {
			t.Errorf("%s: %d bytes, CloudFormation takes %d", kind, len(text), most)
		}
		got, err := stack.Parse(text)
		must(t, err)
		want := tmpl.Plain()
		for name, p := range want["Parameters"].(map[string]any) {
			m := p.(map[string]any)
			m["Description"] = strings.ReplaceAll(m["Description"].(string), "`", "")
			if m["ConstraintDescription"] != nil {
				delete(m, "AllowedPattern")
			}
			delete(m, "ConstraintDescription")
			if m["Type"] == "Number" { // checked before
				for _, key := range []string{"MinValue", "MaxValue", "AllowedValues"} {
					delete(m, key)
				}
			}
			if diff := cmp.Diff(m, got["Parameters"].(map[string]any)[name]); diff != "" {
				t.Errorf("%s: %s: the template -, printed +:\n%s", kind, name, diff)
			}
		}
		for _, more := range []stack.Values{nil, {"KmsKey": "key", "Billing": "provisioned", "NoAggregator": "true", "Topic": "arn:aws:sns:eu-central-1:" + account + ":t"}} {
			values := examples()[kind]
			maps.Copy(values, more)
			whole, err := cloudtest.Resolve(want, values)
			must(t, err)
			printed, err := cloudtest.Resolve(got, values)
			must(t, err)
			if diff := cmp.Diff(whole, printed); diff != "" {
				t.Errorf("%s, %v: the template -, printed +:\n%s", kind, more, diff)
			}
		}
		if !bytes.Equal(text, tmpl.CloudFormation(nil)) {
			t.Errorf("%s: twice the same makes different bytes", kind)
		}
	}
	text := load(t, stack.Weir).CloudFormation(stack.Values{"Memory": "512", "CodeKey": "a: \"b\""})
	doc, err := stack.Parse(text)
	must(t, err)
	parameters := doc["Parameters"].(map[string]any)
	for name, want := range map[string]string{"Memory": "512", "CodeKey": "a: \"b\""} {
		if got := parameters[name].(map[string]any)["Default"]; got != want {
			t.Errorf("%s: default %v, want %s", name, got, want)
		}
	}
}

// generic converts a value to its JSON form, without null or empty values.
func generic(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	var out any
	must(t, json.Unmarshal(text, &out))
	return prune(out)
}

func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, one := range v {
			if one == nil || one == "" {
				delete(v, k)
				continue
			}
			v[k] = prune(one)
		}
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
	case bool:
		return fmt.Sprint(v)
	}
	return v
}

// maker records the call that creates a table.
type maker struct {
	*awsdynamodb.Client
	see func(name string, in any)
}

func (m *maker) CreateTable(
	ctx context.Context, in *awsdynamodb.CreateTableInput, opts ...func(*awsdynamodb.Options),
) (*awsdynamodb.CreateTableOutput, error) {
	m.see("", in)
	return m.Client.CreateTable(ctx, in, opts...)
}

func (m *maker) UpdateTimeToLive(
	ctx context.Context, in *awsdynamodb.UpdateTimeToLiveInput, opts ...func(*awsdynamodb.Options),
) (*awsdynamodb.UpdateTimeToLiveOutput, error) {
	m.see("TimeToLiveSpecification", in.TimeToLiveSpecification)
	return m.Client.UpdateTimeToLive(ctx, in, opts...)
}

func (m *maker) UpdateContinuousBackups(
	_ context.Context, in *awsdynamodb.UpdateContinuousBackupsInput, _ ...func(*awsdynamodb.Options),
) (*awsdynamodb.UpdateContinuousBackupsOutput, error) {
	m.see("PointInTimeRecoverySpecification", in.PointInTimeRecoverySpecification)
	return &awsdynamodb.UpdateContinuousBackupsOutput{}, nil
}

// TestTable compares the template's table with the one that the store creates.
func TestTable(t *testing.T) {
	t.Parallel()
	name, made := dynamotest.Table(t), map[string]any{}
	admin := &maker{Client: dynamotest.Client(t, dynamotest.Engine(t)), see: func(name string, in any) {
		if name != "" {
			made[name] = generic(t, in)
			return
		}
		maps.Copy(made, generic(t, in).(map[string]any))
	}}
	_, err := dynamodb.Create(t.Context(), admin, name, dynamodb.CreateConfig{PITR: true, DeletionProtection: true})
	must(t, err)
	made["TableName"] = "weir"
	table := resolved(t, stack.Weir, stack.Values{"DeletionProtection": "true"}).Resources["Table"]
	have := table["Properties"].(map[string]any)
	if d := have["PointInTimeRecoverySpecification"].(map[string]any); d["RecoveryPeriodInDays"] != "35" {
		t.Errorf("backups %v, want of 35 days", d)
	}
	delete(have["PointInTimeRecoverySpecification"].(map[string]any), "RecoveryPeriodInDays")
	if diff := cmp.Diff(map[string]any{"StreamViewType": "NEW_AND_OLD_IMAGES"}, have["StreamSpecification"]); diff != "" {
		t.Error(diff)
	}
	delete(have, "StreamSpecification") // the store leaves the stream to its readers
	delete(made, "StreamSpecification")
	if diff := cmp.Diff(made, have); diff != "" {
		t.Errorf("the store makes -, the template +:\n%s", diff)
	}
}

// TestDataKept: everything that holds data is retained.
func TestDataKept(t *testing.T) {
	t.Parallel()
	kept := map[string]string{
		"AWS::DynamoDB::Table": "Retain", "AWS::S3::Bucket": "Retain", "AWS::Logs::LogGroup": "Retain",
		"AWS::ElastiCache::ReplicationGroup": "Snapshot",
	}
	for _, kind := range kinds {
		for id, r := range load(t, kind).Plain()["Resources"].(map[string]any) {
			r := r.(map[string]any)
			if want := kept[r["Type"].(string)]; want != "" && (r["DeletionPolicy"] != want || r["UpdateReplacePolicy"] != want) {
				t.Errorf("%s: %s goes with its stack", kind, id)
			}
		}
	}
}

// TestDashboard: the page is JSON, and names what exists.
func TestDashboard(t *testing.T) {
	t.Parallel()
	for _, values := range []stack.Values{nil, {"ConfigFlow": "true"}, {"NoAggregator": "true", "NoProvisioner": "true"}} {
		body := resolved(t, stack.Weir, values).Resources["Dashboard"]["Properties"].(map[string]any)["DashboardBody"].(string)
		var page struct {
			Widgets []struct {
				Properties struct{ Metrics [][]any }
			}
		}
		must(t, json.Unmarshal([]byte(body), &page))
		if len(page.Widgets) != 10 || len(page.Widgets[4].Properties.Metrics) != 9 {
			t.Errorf("%d widgets: %s", len(page.Widgets), body)
		}
		for i, want := range map[int]string{8: "ConcurrentExecutions", 9: "AccountProvisionedWriteCapacityUtilization"} {
			if !strings.Contains(fmt.Sprint(page.Widgets[i].Properties.Metrics), want) {
				t.Errorf("widget %d has no %s: %s", i, want, body)
			}
		}
		if has := strings.Contains(body, "ref:AggregatorSource"); has != (values["NoAggregator"] == "") {
			t.Errorf("%v: the aggregator's source is named: %t", values, has)
		}
	}
}

var interpolation = regexp.MustCompile(`(\$+)\{([^}]*)`)

// TestTerraform: the module holds the template and what is given, and refers to its own variables and stack alone.
func TestTerraform(t *testing.T) {
	t.Parallel()
	tmpl := load(t, stack.Weir)
	text, err := tmpl.Terraform(stack.Values{"Stack": "limits", "NamespaceTag": "${x}"}, map[string]string{"team": "a"})
	must(t, err)
	var m struct {
		Resource map[string]map[string]struct {
			Name       string
			Template   string `json:"template_body"`
			Parameters map[string]string
			Tags       map[string]string
		}
		Variable map[string]any
	}
	must(t, json.Unmarshal(text, &m))
	s := m.Resource["aws_cloudformation_stack"]["weir"]
	want := map[string]string{
		"Stack": "limits", "NamespaceTag": "$${x}", "CodeBucket": "${var.code_bucket}", "CodeKey": "${var.code_key}",
	}
	if diff := cmp.Diff(want, s.Parameters); diff != "" || s.Name != "limits" || s.Tags["team"] != "a" || len(m.Variable) != 2 {
		t.Errorf("%s, tags %v, variables %v\n%s", s.Name, s.Tags, m.Variable, diff)
	}
	for _, ref := range interpolation.FindAllStringSubmatch(s.Template, -1) {
		if len(ref[1])%2 != 0 {
			t.Errorf("Terraform would replace %s", ref[0])
		}
	}
	if unescaped := strings.NewReplacer("$${", "${", "%%{", "%{").Replace(s.Template); unescaped != string(tmpl.CloudFormation(nil)) {
		t.Error("the template is not the one that CloudFormation gets")
	}
}

// TestKeyEncryptsLogs: the key that is given encrypts every log group.
func TestKeyEncryptsLogs(t *testing.T) {
	t.Parallel()
	const key = "arn:aws:kms:eu-central-1:" + account + ":key/0123abcd"
	for given, want := range map[string]any{"": nil, key: key} {
		logs := 0
		for id, r := range resolved(t, stack.Weir, stack.Values{"ConfigFlow": "true", "KmsKey": given}).Resources {
			if r["Type"] != "AWS::Logs::LogGroup" {
				continue
			}
			if logs++; r["Properties"].(map[string]any)["KmsKeyId"] != want {
				t.Errorf("key %q: %s is encrypted by %v", given, id, r["Properties"].(map[string]any)["KmsKeyId"])
			}
		}
		if logs != 3 {
			t.Errorf("%d log groups, want 3", logs)
		}
	}
}

// TestArchiveLock: the archive is locked for as long as is given, and by default not at all.
func TestArchiveLock(t *testing.T) {
	t.Parallel()
	lock := func(days string) any {
		p := resolved(t, stack.Weir, stack.Values{"ArchiveLockDays": days}).Resources["ArchiveBucket"]["Properties"].(map[string]any)
		return [2]any{p["ObjectLockEnabled"], p["ObjectLockConfiguration"]}
	}
	want := [2]any{"true", map[string]any{
		"ObjectLockEnabled": "Enabled",
		"Rule":              map[string]any{"DefaultRetention": map[string]any{"Mode": "COMPLIANCE", "Days": "400"}},
	}}
	if diff := cmp.Diff(any(want), lock("400")); diff != "" {
		t.Error(diff)
	}
	if got := lock("0"); got != [2]any{} {
		t.Errorf("unasked, the archive has the lock %v", got)
	}
}

// TestCost: the alarm compares what a day's pace costs with --cost-alarm or, if there is one, with the budget, and states
// the amount. Provisioned capacity has no such alarm, since what is consumed of it costs nothing.
func TestCost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values    stack.Values
		threshold any // nil: there is no alarm
		budget    any // nil: there is no budget
	}{
		{nil, "2000", nil},
		{stack.Values{"CostAlarm": "0"}, nil, nil},
		{stack.Values{"NoAlarms": "true", "MonthlyBudget": "50"}, nil, "50"},
		{stack.Values{"MonthlyBudget": "50"}, "50", "50"},
		{stack.Values{"MonthlyBudget": "50", "CostAlarm": "0"}, "50", "50"},
		{stack.Values{"MonthlyBudget": "50", "Billing": "provisioned"}, nil, "50"},
	} {
		tmpl := resolved(t, stack.Weir, tt.values).Resources
		if alarm := tmpl["Cost"]; tt.threshold != nil {
			p := alarm["Properties"].(map[string]any)
			if p["Threshold"] != tt.threshold || !strings.Contains(p["AlarmDescription"].(string), fmt.Sprint("more than ", tt.threshold, " USD a month")) {
				t.Errorf("%v: %v", tt.values, p)
			}
		} else if alarm != nil {
			t.Errorf("%v: %v", tt.values, alarm)
		}
		var limit any
		if b := tmpl["Budget"]; b != nil {
			p := b["Properties"].(map[string]any)
			limit = p["Budget"].(map[string]any)["BudgetLimit"].(map[string]any)["Amount"]
			if p["NotificationsWithSubscribers"] != nil {
				t.Errorf("%v: somebody is notified: %v", tt.values, p)
			}
		}
		if limit != tt.budget {
			t.Errorf("%v: budget %v", tt.values, limit)
		}
	}
	topic := "arn:aws:sns:eu-central-1:" + account + ":oncall"
	p := resolved(t, stack.Weir, stack.Values{"MonthlyBudget": "50", "AlarmTopic": topic}).Resources["Budget"]["Properties"].(map[string]any)
	want := map[string]any{
		"Budget": map[string]any{
			"BudgetType": "COST", "TimeUnit": "MONTHLY", "BudgetLimit": map[string]any{"Amount": "50", "Unit": "USD"},
			"CostFilters": map[string]any{"TagKeyValue": []any{"user:" + stack.TagStack + "$weir"}},
		},
		"NotificationsWithSubscribers": []any{map[string]any{
			"Notification": map[string]any{"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": "80"},
			"Subscribers":  []any{map[string]any{"SubscriptionType": "SNS", "Address": topic}},
		}},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"-1", "NaN", "Inf", "1e9", "x"} {
		if err := load(t, stack.Weir).CheckEach(stack.Values{"MonthlyBudget": bad}); err == nil || !strings.Contains(err.Error(), "--monthly-budget "+bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestCellAuth: a cell's Valkey requires TLS and a password of its own, which is in no output.
func TestCellAuth(t *testing.T) {
	t.Parallel()
	for no, want := range map[string]any{"false": "{{resolve:secretsmanager:ref:ValkeyAuth}}", "true": nil} {
		r := resolved(t, stack.Cell, stack.Values{"NoAuth": no})
		p := r.Resources["Valkey"]["Properties"].(map[string]any)
		if p["AuthToken"] != want || p["TransitEncryptionEnabled"] != "true" || p["TransitEncryptionMode"] != "required" {
			t.Errorf("--no-auth=%s: %v", no, p)
		}
		secret := r.Resources["ValkeyAuth"]
		if (secret != nil) != (want != nil) || (r.Outputs["PasswordArn"] != nil) != (want != nil) {
			t.Errorf("--no-auth=%s: secret %v, outputs %v", no, secret, r.Outputs)
		}
		for name, o := range r.Outputs {
			if strings.Contains(fmt.Sprint(o["Value"]), "resolve:") {
				t.Errorf("output %s has the password", name)
			}
		}
	}
}
