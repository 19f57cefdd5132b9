package cloud_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/aws/cloud"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store/dynamodb"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const account = "123456789012"

// most is a deployment with every option.
func most() *cloud.Params {
	p := cloud.Defaults()
	p.Version, p.Tags = "v1.2.3", map[string]string{"team": "gateway"}
	p.Billing, p.ConfigFlow, p.Tracing, p.Concurrency = cloud.Provisioned, true, true, 3
	p.KMSKey = "arn:aws:kms:eu-central-1:" + account + ":key/0123abcd"
	p.AlarmTopic = "arn:aws:sns:eu-central-1:" + account + ":oncall"
	p.Roles, p.Trust = true, []string{"arn:aws:iam::" + account + ":role/gateway"}
	p.PermissionBoundary, p.RoleNameFormat, p.PolicyNameFormat = "edge", "acme-{}", "acme-{}-policy"
	p.ArchiveDays, p.DeletionProtection = 3650, true
	return &p
}

func cell() *cloud.Cell {
	c := cloud.CellDefaults()
	c.VPC, c.Subnets = "vpc-0123456789abcdef0", []string{"subnet-0123456789abcdef0", "subnet-0123456789abcdef1"}
	c.Clients = []string{"sg-0123456789abcdef0", "sg-0123456789abcdef1"}
	c.Topic = "arn:aws:sns:eu-central-1:" + account + ":weir-config"
	return &c
}

func edge() *cloud.Edge {
	e := cloud.EdgeDefaults()
	e.Rates = []cloud.Rate{{Amount: 600, Period: time.Minute, Burst: 900}, {Amount: 50_000, Period: 24 * time.Hour, Burst: 50_000}}
	e.API, e.Stage, e.Header = "abcdef1234", "prod", "X-Api-Key"
	return &e
}

func gate() *cloud.Gate {
	g := cloud.GateDefaults()
	g.Alarms = []string{"arn:aws:cloudwatch:eu-central-1:" + account + ":alarm:weir-write-throttles", "arn:aws:cloudwatch:eu-central-1:" + account + ":alarm:refused"}
	return &g
}

func defaults() *cloud.Params {
	p := cloud.Defaults()
	return &p
}

func deployments() map[string]cloud.Deployment {
	return map[string]cloud.Deployment{"default": defaults(), "most": most(), "cell": cell(), "edge": edge(), "gate": gate()}
}

// TestGolden shows the effect of a change. Terraform's AWS provider is not available where tests run: it has not
// validated these files.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, d := range deployments() {
		for suffix, render := range map[string]func(cloud.Deployment) ([]byte, error){".json": cloud.Render, ".tf.json": cloud.RenderTerraform} {
			got, err := render(d)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := render(d); err != nil || !bytes.Equal(got, again) {
				t.Errorf("%s%s: twice the same makes different bytes (%v)", name, suffix, err)
			}
			path := filepath.Join("testdata", name+suffix)
			if *update {
				must(t, os.WriteFile(path, got, 0o644))
				continue
			}
			want, err := os.ReadFile(path)
			must(t, err)
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s is not what is made now; go test ./internal/aws/cloud -update:\n%s", path, diff)
			}
		}
	}
}

type resource struct {
	Type                                string
	DeletionPolicy, UpdateReplacePolicy string
	Properties                          map[string]any
}

func resources(t *testing.T, text []byte) map[string]resource {
	t.Helper()
	var all struct{ Resources map[string]resource }
	must(t, json.Unmarshal(text, &all))
	return all.Resources
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
	}
	return v
}

// maker records the call that creates a table.
type maker struct {
	*awsdynamodb.Client
	see func(name string, in any)
}

func (m *maker) CreateTable(ctx context.Context, in *awsdynamodb.CreateTableInput, opts ...func(*awsdynamodb.Options)) (*awsdynamodb.CreateTableOutput, error) {
	m.see("", in)
	return m.Client.CreateTable(ctx, in, opts...)
}

func (m *maker) UpdateTimeToLive(ctx context.Context, in *awsdynamodb.UpdateTimeToLiveInput, opts ...func(*awsdynamodb.Options)) (*awsdynamodb.UpdateTimeToLiveOutput, error) {
	m.see("TimeToLiveSpecification", in.TimeToLiveSpecification)
	return m.Client.UpdateTimeToLive(ctx, in, opts...)
}

func (m *maker) UpdateContinuousBackups(_ context.Context, in *awsdynamodb.UpdateContinuousBackupsInput, _ ...func(*awsdynamodb.Options)) (*awsdynamodb.UpdateContinuousBackupsOutput, error) {
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
	_, err := dynamodb.Create(t.Context(), admin, name, dynamodb.CreateConfig{
		PITR: true, DeletionProtection: true, Tags: map[string]string{cloud.TagStack: "weir"},
	})
	must(t, err)
	made["TableName"] = "weir"
	p := cloud.Defaults()
	p.DeletionProtection = true
	table := resources(t, template(t, p))["Table"]
	have := table.Properties
	if d := have["PointInTimeRecoverySpecification"].(map[string]any); d["RecoveryPeriodInDays"] != 35.0 {
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
	if table.DeletionPolicy != "Retain" || table.UpdateReplacePolicy != "Retain" {
		t.Errorf("the table goes with its stack: %s, %s", table.DeletionPolicy, table.UpdateReplacePolicy)
	}
}

var empty = regexp.MustCompile(`: (""|\[\]|null)`)

// TestWhole checks every deployment: everything that can be tagged is tagged, everything that holds data is retained,
// every alarm notifies the configured target if there is one, and nothing is empty.
func TestWhole(t *testing.T) {
	t.Parallel()
	untagged := []string{"ScalableTarget", "ScalingPolicy", "Dashboard", "ManagedPolicy", "BucketPolicy", "SecurityGroupIngress", "Subscription", "QueuePolicy", "HostedConfigurationVersion"}
	kept := []string{"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::Logs::LogGroup"}
	for name, d := range deployments() {
		text, err := cloud.Render(d)
		must(t, err)
		if at := empty.FindIndex(text); at != nil {
			t.Errorf("%s: something is empty: %s", name, text[max(0, at[0]-60):at[1]])
		}
		for id, r := range resources(t, text) {
			last := r.Type[strings.LastIndex(r.Type, ":")+1:]
			if (r.Properties["Tags"] == nil) != slices.Contains(untagged, last) {
				t.Errorf("%s: %s has tags %v", name, id, r.Properties["Tags"])
			}
			if slices.Contains(kept, r.Type) && (r.DeletionPolicy != "Retain" || r.UpdateReplacePolicy != "Retain") {
				t.Errorf("%s: %s goes with its stack", name, id)
			}
			if name == "most" && r.Type == "AWS::CloudWatch::Alarm" && (r.Properties["AlarmActions"] == nil || r.Properties["OKActions"] == nil) {
				t.Errorf("%s: %s tells nobody", name, id)
			}
		}
	}
}

var termReference = regexp.MustCompile(`\$\{(?:data\.)?([a-z0-9_]+)\.([a-z0-9_]+)`)

// TestTerraformReferences: every reference has a target.
func TestTerraformReferences(t *testing.T) {
	t.Parallel()
	for name, d := range deployments() {
		text, err := cloud.RenderTerraform(d)
		must(t, err)
		var m struct {
			Resource, Data map[string]map[string]any
			Variable       map[string]any
		}
		must(t, json.Unmarshal(text, &m))
		bare := bytes.ReplaceAll(text, []byte("$${"), nil)
		found := termReference.FindAllSubmatch(bare, -1)
		if len(found) != bytes.Count(bare, []byte("${")) {
			t.Errorf("%s: %d references of %d are understood", name, len(found), bytes.Count(bare, []byte("${")))
		}
		for _, ref := range found {
			typ, id := string(ref[1]), string(ref[2]) //nolint:staticcheck // both are looked up three times
			if m.Resource[typ][id] == nil && m.Data[typ][id] == nil && (typ != "var" || m.Variable[id] == nil) {
				t.Errorf("%s: %s refers to nothing", name, ref[0])
			}
		}
	}
}
